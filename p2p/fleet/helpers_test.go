// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	stdjson "encoding/json"

	"github.com/gpurdma/gpurdma/p2p/render"
)

// plain is text without colours.
var plain = render.Style{}

// jsonOf writes JSON as the command does.
func jsonOf(value any) ([]byte, error) { return stdjson.Marshal(value) }
