// SPDX-License-Identifier: Apache-2.0

// Package referencetest compares the documents with the commands, for the commands' tests: the documents that
// are written from the programs, and the command lines in all documents. One changes here how a command or a
// JSON document is described, and which blocks of documents are read as commands.
package referencetest
