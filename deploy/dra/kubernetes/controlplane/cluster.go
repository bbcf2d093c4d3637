// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// patience is how long a component may take to be ready, or an object to be as it should, on a busy machine.
const patience = 5 * time.Minute

// controllers are those that a cluster without containers and networks has a use for.
const controllers = "daemonset-controller,device-taint-eviction-controller,garbage-collector-controller,namespace-controller," +
	"resourceclaim-controller,serviceaccount-controller,validatingadmissionpolicy-status-controller"

// Cluster is a control plane that runs.
type Cluster struct {
	Dir string // has the logs of the components

	url       string
	gates     string
	authority *authority
	running   []*process
}

// Start starts a control plane, whose files are below a directory. gates are feature gates of all components, as their
// flags have them; those that are not named are at their defaults.
func Start(ctx context.Context, dir, gates string) (c *Cluster, err error) {
	c = &Cluster{Dir: dir, gates: gates}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			c.Stop()
		}
	}()
	if c.authority, err = newAuthority(); err != nil {
		return nil, err
	}
	database, err := c.etcd(ctx)
	if err != nil {
		return nil, err
	}
	// Another program may take a free port before the server does.
	for range 3 {
		if err = c.apiServer(ctx, database); err == nil {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	for name, args := range map[string][]string{
		schedulerName:     nil,
		controllerManager: {"--controllers=" + controllers, "--use-service-account-credentials=true"},
	} {
		file := c.file(name + ".kubeconfig")
		if err := c.WriteKubeconfig(file, c.User("system:"+name)); err != nil {
			return nil, err
		}
		p, err := start(dir, name, append(args, "--kubeconfig="+file, "--leader-elect=false", "--secure-port=0", "--feature-gates="+gates)...)
		if err != nil {
			return nil, err
		}
		c.running = append(c.running, p)
	}
	return c, nil
}

// Stop ends all components, those that others need last.
func (c *Cluster) Stop() {
	for len(c.running) > 0 {
		last := len(c.running) - 1
		c.running[last].stop()
		c.running = c.running[:last]
	}
}

// Check returns an error if a component has ended.
func (c *Cluster) Check() error {
	var err error
	for _, p := range c.running {
		err = errors.Join(err, p.failed())
	}
	return err
}

func (c *Cluster) file(name string) string { return filepath.Join(c.Dir, name) }

// etcd starts etcd, and returns its URL.
func (c *Cluster) etcd(ctx context.Context) (string, error) {
	at := c.file("etcd.url")
	p, err := start(c.Dir, etcd, c.file("etcd"), at)
	if err != nil {
		return "", err
	}
	c.running = append(c.running, p)
	var database []byte
	err = c.await(ctx, p, func(context.Context) bool {
		database, err = os.ReadFile(at)
		return err == nil
	})
	return string(database), err
}

// apiServer starts the API server on a free port.
func (c *Cluster) apiServer(ctx context.Context, database string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		return err
	}
	c.url = fmt.Sprintf("https://127.0.0.1:%d", port)
	serving, servingKey, err := c.authority.sign("kube-apiserver")
	if err != nil {
		return err
	}
	accounts, accountsKey, err := c.authority.sign("service-accounts")
	if err != nil {
		return err
	}
	if err := write(map[string][]byte{
		c.file("ca.crt"): c.authority.pem(), c.file("server.crt"): serving, c.file("server.key"): servingKey,
		c.file("accounts.crt"): accounts, c.file("accounts.key"): accountsKey,
	}); err != nil {
		return err
	}
	p, err := start(c.Dir, apiServer, "--etcd-servers="+database, "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
		fmt.Sprint("--secure-port=", port), "--cert-dir="+c.Dir, "--tls-cert-file="+c.file("server.crt"), "--tls-private-key-file="+c.file("server.key"),
		"--client-ca-file="+c.file("ca.crt"), "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+c.file("accounts.crt"), "--service-account-signing-key-file="+c.file("accounts.key"),
		"--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none", "--feature-gates="+c.gates)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(c.Admin())
	if err == nil {
		err = c.await(ctx, p, func(ctx context.Context) bool {
			return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error() == nil
		})
	}
	if err != nil {
		p.stop()
		return err
	}
	c.running = append(c.running, p)
	return nil
}

// await waits until a component is ready.
func (c *Cluster) await(ctx context.Context, p *process, ready func(context.Context) bool) error {
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		return ready(ctx), p.failed()
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("%s is not ready: see %s: %w", p.name, p.log, err)
	}
	return err
}

// User is how a user of some groups talks to the API server. An error shows when it does.
func (c *Cluster) User(name string, groups ...string) *rest.Config {
	certificate, key, err := c.authority.sign(name, groups...)
	if err != nil {
		panic(err) // there are no random numbers
	}
	return &rest.Config{Host: c.url, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: c.authority.pem(), CertData: certificate, KeyData: key}}
}

// Admin may do everything.
func (c *Cluster) Admin() *rest.Config { return c.User("admin", "system:masters") }

// Kubelet may do what the kubelet of a node may.
func (c *Cluster) Kubelet(node string) *rest.Config {
	return c.User("system:node:"+node, "system:nodes")
}

// Token is how the owner of a service account's token talks to the API server.
func (c *Cluster) Token(token string) *rest.Config {
	return &rest.Config{Host: c.url, QPS: -1, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: c.authority.pem()}}
}

// WriteKubeconfig writes a file with which a program talks to the API server.
func (c *Cluster) WriteKubeconfig(file string, r *rest.Config) error {
	name := strings.TrimSuffix(filepath.Base(file), ".kubeconfig")
	return clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:  map[string]*clientcmdapi.Cluster{"test": {Server: r.Host, CertificateAuthorityData: r.CAData}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{name: {ClientCertificateData: r.CertData, ClientKeyData: r.KeyData, Token: r.BearerToken}},
		Contexts:  map[string]*clientcmdapi.Context{"test": {Cluster: "test", AuthInfo: name}}, CurrentContext: "test",
	}, file)
}
