// SPDX-License-Identifier: Apache-2.0

package errs

import (
	"context"
	"errors"
	"fmt"
)

// Ended returns why a context has ended, nil if it has not: its error and, if it was given
// another one, its cause.
func Ended(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	switch cause := context.Cause(ctx); {
	case cause == nil || cause == err:
		return err
	case errors.Is(cause, err):
		return cause
	default:
		return fmt.Errorf("%w: %w", err, cause)
	}
}
