// SPDX-License-Identifier: Apache-2.0

package enum

import "fmt"

// Name is names[i], or "Type(i)" for a number without a name.
func Name(names []string, i int, typ string) string {
	if i >= 0 && i < len(names) && names[i] != "" {
		return names[i]
	}
	return fmt.Sprintf("%s(%d)", typ, i)
}
