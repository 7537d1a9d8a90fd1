package cli

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	sluicev1 "sluice/shared/proto/sluice/v1"
	"sluice/testharness/rig"
)

// authorityFiles is a certificate authority of the test's own, and a certificate of it, in files.
type authorityFiles struct{ ca, certificate, key string }

func issue(t *testing.T) authorityFiles {
	t.Helper()
	directory := t.TempDir()
	now := time.Now()
	template := func(serial int64, name string) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		}
	}
	newKey := func() *ecdsa.PrivateKey {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	put := func(name, kind string, der []byte, err error) string {
		file := filepath.Join(directory, name)
		if err == nil {
			err = os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return file
	}
	caKey, key := newKey(), newKey()
	ca := template(1, "test authority")
	ca.IsCA, ca.BasicConstraintsValid, ca.KeyUsage = true, true, x509.KeyUsageCertSign
	leaf := template(2, "test")
	leaf.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	caDER, caErr := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	leafDER, leafErr := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, caKey)
	keyDER, keyErr := x509.MarshalECPrivateKey(key)
	return authorityFiles{
		ca:          put("ca.pem", "CERTIFICATE", caDER, caErr),
		certificate: put("leaf.pem", "CERTIFICATE", leafDER, leafErr),
		key:         put("leaf.key", "EC PRIVATE KEY", keyDER, keyErr),
	}
}

// clientTLS trusts one authority, and shows a certificate where it is given one.
func clientTLS(t *testing.T, trusts, shows *authorityFiles) credentials.TransportCredentials {
	t.Helper()
	text, err := os.ReadFile(trusts.ca)
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	config.RootCAs.AppendCertsFromPEM(text)
	if shows != nil {
		certificate, err := tls.LoadX509KeyPair(shows.certificate, shows.key)
		if err != nil {
			t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{certificate}
	}
	return credentials.NewTLS(config)
}

func TestTLS(t *testing.T) {
	ours, strangers := issue(t), issue(t)
	server := []string{"--grpc-tls-cert", ours.certificate, "--grpc-tls-key", ours.key}
	for name, test := range map[string]struct {
		args  []string
		shows *authorityFiles
		want  codes.Code
	}{
		"TLS":                            {server, nil, codes.OK},
		"mTLS, a client that we know":    {append(server[:4:4], "--grpc-tls-client-ca", ours.ca), &ours, codes.OK},
		"mTLS, a client without any":     {append(server[:4:4], "--grpc-tls-client-ca", ours.ca), nil, codes.Unavailable},
		"mTLS, a client of another's":    {append(server[:4:4], "--grpc-tls-client-ca", ours.ca), &strangers, codes.Unavailable},
		"plain text, a client of TLS":    {nil, nil, codes.Unavailable},
		"another's authority than we do": {append(server[:4:4], "--grpc-tls-client-ca", strangers.ca), &ours, codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			service := start(t, rig.ServiceOptions{Store: "memory", Args: test.args})
			client := sluicev1.NewControlClient(connect(t, service.GRPC, clientTLS(t, &ours, test.shows)))
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			_, err := client.GetPolicy(ctx, &sluicev1.GetPolicyRequest{})
			if status.Code(err) != test.want {
				t.Errorf("error %v; want %v", err, test.want)
			}
		})
	}
}
