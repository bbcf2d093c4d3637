// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"fmt"
	"net/url"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/gpurdma/gpurdma/internal/wholefile"
)

// runEtcd runs etcd until it fails. The arguments are its data directory, and the file that gets the URL for clients
// as soon as etcd is ready.
func runEtcd(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("etcd needs a directory and a file, not %q", args)
	}
	c := embed.NewConfig()
	c.Dir, c.LogLevel, c.LogOutputs = args[0], "warn", []string{"stderr"}
	c.UnsafeNoFsync = true // the test removes the files anyway
	any := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	c.ListenClientUrls, c.AdvertiseClientUrls, c.ListenPeerUrls, c.AdvertisePeerUrls = any, any, any, any
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	e, err := embed.StartEtcd(c)
	if err != nil {
		return err
	}
	select {
	case <-e.Server.ReadyNotify():
	case err := <-e.Err():
		return err
	}
	if len(e.Clients) != 1 {
		return errors.New("it does not listen to clients")
	}
	if err := wholefile.Replace(args[1], []byte("http://"+e.Clients[0].Addr().String()), 0o600); err != nil {
		return err
	}
	return <-e.Err()
}
