// SPDX-License-Identifier: Apache-2.0

// Package bridge lets package fabrictest make a Fabric of package gpurdma and a Domain of package
// fi, which no program can make of other NICs than those of the machine.
//
// Change it only if fabrictest has to give a Fabric something new.
package bridge
