// SPDX-License-Identifier: Apache-2.0

// Package trial carries out one operation in one direction, and verifies every byte where it landed. To
// verify an operation in another way, change this package.
package trial
