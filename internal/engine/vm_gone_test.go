// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package engine

import "testing"

func TestVMVanishedCallers(t *testing.T) { testVanishedCallers(t, onNIC(t)) }
