// SPDX-License-Identifier: Apache-2.0

package main

import "path/filepath"

func withTLS(dir, name string) []string {
	return []string{"--tls-cert", filepath.Join(dir, name+".pem"), "--tls-key", filepath.Join(dir, name+".key"), "--tls-ca", filepath.Join(dir, "ca.pem")}
}
