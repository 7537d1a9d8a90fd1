package cli

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// tlsFiles are the files that gRPC's TLS is made of, by their names; all empty: plain text.
type tlsFiles struct{ certificate, key, clientCA string }

func (f tlsFiles) check() error {
	switch {
	case (f.certificate == "") != (f.key == ""):
		return errors.New("a certificate and its key go together: want both --grpc-tls-cert and --grpc-tls-key, or neither")
	case f.clientCA != "" && f.certificate == "":
		return errors.New("--grpc-tls-client-ca asks clients for a certificate, which takes a certificate of the server's own")
	}
	return nil
}

// load gives the configuration that the files describe; nil for plain text.
func (f tlsFiles) load() (*tls.Config, error) {
	if f.certificate == "" {
		return nil, nil //nolint:nilnil // plain text is not an error
	}
	certificate, err := tls.LoadX509KeyPair(f.certificate, f.key)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate %s and its key %s: %w", f.certificate, f.key, err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	if f.clientCA == "" {
		return config, nil
	}
	text, err := os.ReadFile(f.clientCA)
	if err != nil {
		return nil, fmt.Errorf("reading the clients' authorities: %w", err)
	}
	config.ClientCAs = x509.NewCertPool()
	if !config.ClientCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no certificate; want the clients' authorities in PEM", f.clientCA)
	}
	config.ClientAuth = tls.RequireAndVerifyClientCert
	return config, nil
}
