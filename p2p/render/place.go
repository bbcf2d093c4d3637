// SPDX-License-Identifier: Apache-2.0

package render

import (
	"regexp"
	"strings"
)

// parameters match a command that is one or more parameters of the kernel: "iommu=pt", "xe.vram_bar_size=0".
// Variables of the environment and options of the kernel's configuration have capital letters.
var parameters = regexp.MustCompile(`^[a-z][a-z0-9_]*(\.[a-z0-9_]+)?=\S+( [a-z][a-z0-9_]*(\.[a-z0-9_]+)?=\S+)*$`)

// Place says where a remedy's command belongs: on the kernel's command line, or in a file of /etc/modprobe.d. It
// returns "" for a command of a shell, and for any other text.
func Place(command string) string {
	switch {
	case strings.HasPrefix(command, "options "):
		return "in a file NAME.conf in /etc/modprobe.d"
	case parameters.MatchString(command):
		return "on the kernel's command line"
	}
	return ""
}

// placed is a remedy's change with the place of its command, unless the change names a place itself.
func placed(change, command string) string {
	if place := PlaceOf(change, command); place != "" {
		return change + "; put this " + place + ":"
	}
	return change
}

// PlaceOf returns Place of the command, or "" if the text of the change already names a place.
func PlaceOf(change, command string) string {
	if strings.Contains(change, "GRUB") || strings.Contains(change, "command line") || strings.Contains(change, "modprobe.d") {
		return ""
	}
	return Place(command)
}
