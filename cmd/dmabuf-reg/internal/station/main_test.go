// SPDX-License-Identifier: Apache-2.0

package station

import (
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }
