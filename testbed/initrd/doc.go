// SPDX-License-Identifier: Apache-2.0

// Package initrd writes the small initramfs that a guest starts from: our
// init and the modules it loads, and nothing else.
//
// Change it to put another file into the initramfs.
package initrd
