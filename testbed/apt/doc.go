// SPDX-License-Identifier: Apache-2.0

// Package apt resolves and downloads Debian packages with the machine's own
// apt, from whatever archive that is configured with. It installs nothing.
//
// Change it to read another field of apt's indexes.
package apt
