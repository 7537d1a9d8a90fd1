package policy

import (
	"crypto/hmac"
	"crypto/sha256"
	"strconv"
)

// Bounds on Policy.HashKey, in bytes: fewer than 16 could be guessed.
const (
	MinHashKey = 16
	MaxHashKey = 1024
)

// Secret is text that is shown nowhere: what prints it prints that it is secret.
type Secret string

// hidden stands for every secret.
const hidden = "(secret)"

// String keeps the secret.
func (Secret) String() string { return hidden }

// GoString keeps the secret.
func (Secret) GoString() string { return hidden }

// MarshalText keeps the secret.
func (Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

func checkHashKey(key Secret) *invalid {
	if n := len(key); n != 0 && (n < MinHashKey || n > MaxHashKey) {
		return &invalid{"hash_key", "has " + strconv.Itoa(n) + " bytes, want " + strconv.Itoa(MinHashKey) + " to " + strconv.Itoa(MaxHashKey)}
	}
	return nil
}

// secretForm gives the form in which a hashed value stands in a key.
func (p *Policy) secretForm(value string) string {
	mac := hmac.New(sha256.New, []byte(p.HashKey))
	mac.Write([]byte(value))
	var sum [sha256.Size]byte
	return hexForm(secretMark, mac.Sum(sum[:0]))
}

// boundForm bounds a form with marks in it to what EscapeValue gives at most.
func boundForm(form string) string {
	if len(form) <= 3*MaxValueLength {
		return form
	}
	sum := sha256.Sum256([]byte(form))
	return hexForm("#", sum[:])
}

// hexForm needs no encoding/hex, which would bring fmt into the filter.
func hexForm(mark string, sum []byte) string {
	const digits = "0123456789abcdef"
	text := make([]byte, 0, len(secretMark)+2*sha256.Size)
	text = append(text, mark...)
	for _, b := range sum {
		text = append(text, digits[b>>4], digits[b&0xf])
	}
	return string(text)
}
