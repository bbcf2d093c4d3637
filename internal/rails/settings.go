// SPDX-License-Identifier: Apache-2.0

package rails

import (
	"fmt"
	"time"

	"github.com/gpurdma/gpurdma/failure"
)

// Settings are fields of a program's Config: numbers from 0 to Most, of which 0 is the default.
type Settings []struct {
	Name        string
	Value, Most int
}

// Wait is a field of a program's Config: a time, of which 0 is the default.
type Wait struct {
	Name  string
	Value time.Duration
}

// Refuse returns the error for a field of a program's Config.
func Refuse(detail, remedy string) error {
	return &failure.Error{Op: "use a Config", Detail: detail, Remedy: remedy, Err: failure.ErrRange}
}

// CheckSettings refuses fields that are out of range.
func CheckSettings(numbers Settings, waits ...Wait) error {
	for _, x := range numbers {
		if x.Value < 0 || x.Value > x.Most {
			return Refuse(fmt.Sprintf("Config.%s %d", x.Name, x.Value), fmt.Sprintf("0 to %d; 0 is the default", x.Most))
		}
	}
	for _, x := range waits {
		if x.Value != 0 && (x.Value < time.Millisecond || x.Value > 24*time.Hour) {
			return Refuse(fmt.Sprintf("Config.%s %v", x.Name, x.Value), "1 ms to 24 h; 0 is the default")
		}
	}
	return nil
}
