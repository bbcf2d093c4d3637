// SPDX-License-Identifier: Apache-2.0

// Package wholefile replaces files whole or not at all: a program that reads one meanwhile reads the old one, and a
// failure leaves it as it was. To write files in a safer or another way, change it.
package wholefile
