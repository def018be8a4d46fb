// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const keyPrefix = "ed25519:"

// Identity is this host's key and the certificate made of it. Peers know each other by the key alone; nothing else in
// the certificate matters.
type Identity struct {
	public ed25519.PublicKey
	cert   tls.Certificate
}

// LoadOrCreateIdentity reads the key at path, or makes one there: mode 0600 in a directory of mode 0700. A key that others
// could have read is refused.
func LoadOrCreateIdentity(path string) (*Identity, error) {
	private, err := readKey(path)
	if errors.Is(err, fs.ErrNotExist) {
		private, err = createKey(path)
	}
	if err != nil {
		return nil, err
	}
	return newIdentity(private)
}

func readKey(path string) (ed25519.PrivateKey, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening the host key: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("reading the host key: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("host key %s has mode %04o, so others can read it: chmod 600 it, or make a new one if they may have",
			path, info.Mode().Perm())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the host key: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("host key %s is not a PEM file", path)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("reading the host key %s: %w", path, err)
	}
	private, ok := key.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("host key %s is %T, not ed25519", path, key)
	}
	return private, nil
}

// createKey writes the key aside and links it into place: a crash leaves no half key, and of two agents that start at
// once both get the same.
func createKey(path string) (ed25519.PrivateKey, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the host key: %w", err)
	}
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("creating the host key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, fmt.Errorf("creating the host key: %w", err)
	}
	tmp, err := os.CreateTemp(dir, ".key-*")
	if err != nil {
		return nil, fmt.Errorf("creating the host key: %w", err)
	}
	defer os.Remove(tmp.Name())
	err = pem.Encode(tmp, &pem.Block{Type: "PRIVATE KEY", Bytes: der})
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return nil, fmt.Errorf("creating the host key: %w", err)
	}
	if err := os.Link(tmp.Name(), path); errors.Is(err, fs.ErrExist) {
		return readKey(path)
	} else if err != nil {
		return nil, fmt.Errorf("creating the host key: %w", err)
	}
	return private, nil
}

func newIdentity(private ed25519.PrivateKey) (*Identity, error) {
	public := private.Public().(ed25519.PublicKey)
	template := x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "trunkline"},
		NotBefore:    time.Unix(0, 0),
		NotAfter:     time.Unix(1<<33, 0),
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, public, private)
	if err != nil {
		return nil, fmt.Errorf("making a certificate: %w", err)
	}
	return &Identity{public: public, cert: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}}, nil
}

// Fingerprint returns the public key as it is written into a peer's configuration: "ed25519:" and the base64 of its 32 bytes.
func (i *Identity) Fingerprint() string { return fingerprint(i.public) }

func fingerprint(key ed25519.PublicKey) string {
	return keyPrefix + base64.StdEncoding.EncodeToString(key)
}

func parseKey(s string) (ed25519.PublicKey, error) {
	text, ok := strings.CutPrefix(s, keyPrefix)
	key, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil || len(key) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("key %q is not %q and the base64 of 32 bytes (see `trunkline keygen` on the peer)", s, keyPrefix)
	}
	return key, nil
}

// keyError is a peer that has another key than it should, or one that nobody configured.
type keyError struct{ key ed25519.PublicKey }

func (e *keyError) Error() string {
	return "the key " + fingerprint(e.key) + " is not the one configured"
}

// tlsConfig pins: the other end must prove that it holds a key which accept takes. Chains, names and dates mean nothing.
func (i *Identity) tlsConfig(accept func(ed25519.PublicKey) bool) *tls.Config {
	return &tls.Config{
		Certificates:                []tls.Certificate{i.cert},
		MinVersion:                  tls.VersionTLS13,
		MaxVersion:                  tls.VersionTLS13,
		ClientAuth:                  tls.RequireAnyClientCert,
		InsecureSkipVerify:          true, // replaced by VerifyConnection
		SessionTicketsDisabled:      true,
		DynamicRecordSizingDisabled: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			key, err := peerKey(state)
			if err != nil {
				return err
			}
			if !accept(key) {
				return &keyError{key}
			}
			return nil
		},
	}
}

func (i *Identity) clientTLS(key ed25519.PublicKey) *tls.Config {
	return i.tlsConfig(func(got ed25519.PublicKey) bool { return bytes.Equal(got, key) })
}

func peerKey(state tls.ConnectionState) (ed25519.PublicKey, error) {
	if len(state.PeerCertificates) == 0 {
		return nil, errors.New("the other end showed no certificate")
	}
	key, ok := state.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
	if !ok {
		return nil, fmt.Errorf("the other end's key is %T, not ed25519", state.PeerCertificates[0].PublicKey)
	}
	return key, nil
}
