// SPDX-License-Identifier: Apache-2.0

// Command deadcode lists functions that no command and no public package reaches: functions that only
// tests call. It runs golang.org/x/tools/cmd/deadcode over all commands of the repository, and over a
// program that refers to everything that the public packages export. A function is dead if it is dead in
// each build that has its file. The allow-list names the functions that may stay, each with a reason.
//
//	deadcode -analyzer FILE -allow FILE DIRECTORY
//
// DIRECTORY is the repository. The program and a workspace of all modules are written into its
// build/deadcode. Change builds.go to analyze another build, and roots.go to take another package as public.
package main
