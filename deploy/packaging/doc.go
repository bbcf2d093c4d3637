// SPDX-License-Identifier: Apache-2.0

// Package packaging is where packages for Debian and for distributions with rpm are made, and tested:
// build.sh makes them by nfpm, whose configuration of each package is NAME.yaml. One changes there what a
// package has in it, and in deb/ and rpm/ what is done when it comes and goes. ../systemd has the units.
package packaging
