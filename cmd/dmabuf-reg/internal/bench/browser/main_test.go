// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"testing"

	"github.com/gpurdma/gpurdma/p2p/page/browser/tab"
)

func TestMain(m *testing.M) { tab.Main(m) }
