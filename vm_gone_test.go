// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package gpurdma

import "testing"

func TestVMVanishedCallers(t *testing.T) { testVanishedCallers(t, onNIC(t)) }
