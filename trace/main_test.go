// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"os"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		child()
	}
	testenv.Main(m)
}
