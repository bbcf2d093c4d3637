#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# After an installation, and after a removal. No unit is enabled: presets and the administrator do that.
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || :
fi
