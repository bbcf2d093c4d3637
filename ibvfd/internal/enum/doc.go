// SPDX-License-Identifier: Apache-2.0

// Package enum names the values of numbered types.
//
// Change it to print unknown values in another way.
package enum
