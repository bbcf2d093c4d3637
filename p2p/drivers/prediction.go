// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"fmt"

	"github.com/gpurdma/gpurdma/internal/errno"
)

// Short is the outcome alone.
func (p Prediction) Short() string {
	if p.Outcome == Refused {
		return fmt.Sprintf("%v with %s", p.Outcome, errno.Name(p.Errno))
	}
	return p.Outcome.String()
}
