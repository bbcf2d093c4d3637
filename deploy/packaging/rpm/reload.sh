#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Runs after an installation, and after a removal. It enables no unit: presets and the administrator do that.
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || :
fi
