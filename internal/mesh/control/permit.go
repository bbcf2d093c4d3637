// SPDX-License-Identifier: Apache-2.0

package control

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
)

// Permit says that a worker expects a call. The worker that is called signs it with the key of its certificate, for one
// session of the worker that calls, one token and one port. So a coordinator can make a worker open a TCP
// connection only to a port that the host there has named itself.
type Permit struct {
	Chain     [][]byte `json:"chain"` // its certificate, and those between that and the authority, in DER
	Signature []byte   `json:"signature"`
}

// Bounds of a permit.
const (
	maxChain       = 8
	maxCertificate = 16 << 10
	maxSignature   = 1 << 10
)

func (p *Permit) check() error {
	if p == nil {
		return nil
	}
	if err := first(within("number of certificates", int64(len(p.Chain)), 1, maxChain), within("length of a signature", int64(len(p.Signature)), 1, maxSignature)); err != nil {
		return err
	}
	for _, c := range p.Chain {
		if err := within("length of a certificate", int64(len(c)), 1, maxCertificate); err != nil {
			return err
		}
	}
	return nil
}

// words is what is signed. No handshake of TLS has a text that begins so.
func words(session, token Token, port int) []byte {
	return fmt.Appendf(nil, "%s: permit to call\n%s\n%s\n%d\n", Protocol, session, token, port)
}

// algorithm is how a key signs.
func algorithm(key crypto.PublicKey) (x509.SignatureAlgorithm, crypto.SignerOpts, error) {
	switch key.(type) {
	case *ecdsa.PublicKey:
		return x509.ECDSAWithSHA256, crypto.SHA256, nil
	case ed25519.PublicKey:
		return x509.PureEd25519, crypto.Hash(0), nil
	case *rsa.PublicKey:
		return x509.SHA256WithRSAPSS, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: crypto.SHA256}, nil
	}
	return 0, nil, fmt.Errorf("a key of the kind %T signs no permit", key)
}

// certificate is the one that a worker shows to its callers.
func certificate(c *tls.Config) (*tls.Certificate, error) {
	switch {
	case len(c.Certificates) > 0:
		return &c.Certificates[0], nil
	case c.GetCertificate != nil:
		return c.GetCertificate(&tls.ClientHelloInfo{})
	}
	return nil, errors.New("this worker has no certificate")
}

// Permitted signs a permit for the worker of a session to call a port of this worker.
func Permitted(c *tls.Config, session, token Token, port int) (*Permit, error) {
	own, err := certificate(c)
	if err != nil {
		return nil, err
	}
	signer, ok := own.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, errors.New("the key of this worker's certificate signs nothing")
	}
	_, opts, err := algorithm(signer.Public())
	if err != nil {
		return nil, err
	}
	text := words(session, token, port)
	if opts.HashFunc() != 0 {
		sum := sha256.Sum256(text)
		text = sum[:]
	}
	signature, err := signer.Sign(rand.Reader, text, opts)
	if err != nil {
		return nil, err
	}
	p := &Permit{Chain: own.Certificate, Signature: signature}
	return p, p.check()
}

// Verify fails if it is not the worker of that host that has signed the permit, with a certificate that this side
// trusts, or if it is for something else.
func (p *Permit) Verify(c *tls.Config, host string, session, token Token, port int) error {
	if p == nil || len(p.Chain) == 0 {
		return errors.New("the coordinator shows no permit of the worker to call")
	}
	var chain []*x509.Certificate
	for _, der := range p.Chain {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return err
		}
		chain = append(chain, cert)
	}
	between := x509.NewCertPool()
	for _, cert := range chain[1:] {
		between.AddCert(cert)
	}
	options := x509.VerifyOptions{DNSName: host, Roots: c.RootCAs, Intermediates: between}
	if c.Time != nil {
		options.CurrentTime = c.Time()
	}
	if _, err := chain[0].Verify(options); err != nil {
		return err
	}
	by, _, err := algorithm(chain[0].PublicKey)
	if err != nil {
		return err
	}
	if err := chain[0].CheckSignature(by, words(session, token, port), p.Signature); err != nil {
		return fmt.Errorf("the permit is not for this call: %w", err)
	}
	return nil
}
