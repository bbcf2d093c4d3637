// SPDX-License-Identifier: Apache-2.0

// Package task finds the NICs for a task of a Slurm job, and writes the variables by which libraries use them. To
// set another variable, or to read another one of Slurm's, change it.
//
// It runs as the job's user, before each task. Where it is not certain which GPUs the task uses, it says why and
// sets nothing: the libraries then choose by themselves.
package task
