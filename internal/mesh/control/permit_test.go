// SPDX-License-Identifier: Apache-2.0

package control

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return &authority{c, key}
}

// node is TLS of a host.
func (a *authority) node(t *testing.T, host string, key crypto.Signer) *tls.Config {
	t.Helper()
	c := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, RootCAs: pool, ClientCAs: pool}
}

// A permit holds for one host, session, token and port, and only with a certificate that the caller trusts.
func TestPermit(t *testing.T) {
	ca, foreign := newAuthority(t), newAuthority(t)
	_, edKey, err1 := ed25519.GenerateKey(rand.Reader)
	rsaKey, err2 := rsa.GenerateKey(rand.Reader, 2048)
	ecKey, err3 := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err1 != nil || err2 != nil || err3 != nil {
		t.Fatal(err1, err2, err3)
	}
	session, token := NewToken(), NewToken()
	for name, key := range map[string]crypto.Signer{"Ed25519": edKey, "RSA": rsaKey, "P-384": ecKey} {
		t.Run(name, func(t *testing.T) {
			own := ca.node(t, "gpu07", key)
			p, err := Permitted(own, session, token, 4000)
			if err != nil {
				t.Fatal(err)
			}
			caller := ca.node(t, "gpu01", ecKey)
			if err := p.Verify(caller, "gpu07", session, token, 4000); err != nil {
				t.Error(err)
			}
			forged := &Permit{p.Chain, slices.Clone(p.Signature)}
			forged.Signature[len(forged.Signature)-1] ^= 1
			for what, c := range map[string]struct {
				p              *Permit
				caller         *tls.Config
				host           string
				session, token Token
				port           int
				says           string
			}{
				"another host":    {p, caller, "gpu08", session, token, 4000, "valid for gpu07, not gpu08"},
				"another session": {p, caller, "gpu07", NewToken(), token, 4000, "not for this call"},
				"another token":   {p, caller, "gpu07", session, NewToken(), 4000, "not for this call"},
				"another port":    {p, caller, "gpu07", session, token, 22, "not for this call"},
				"a forged one":    {forged, caller, "gpu07", session, token, 4000, "not for this call"},
				"a foreign one":   {p, foreign.node(t, "gpu01", ecKey), "gpu07", session, token, 4000, "unknown authority"},
				"none":            {nil, caller, "gpu07", session, token, 4000, "no permit"},
				"no certificate":  {&Permit{}, caller, "gpu07", session, token, 4000, "no permit"},
				"nonsense":        {&Permit{[][]byte{{1, 2}}, []byte{3}}, caller, "gpu07", session, token, 4000, "x509"},
			} {
				if err := c.p.Verify(c.caller, c.host, c.session, c.token, c.port); err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%s: %v, want %q", what, err, c.says)
				}
			}
		})
	}
	if _, err := Permitted(&tls.Config{}, session, token, 1); err == nil {
		t.Error("a permit without a certificate")
	}
}
