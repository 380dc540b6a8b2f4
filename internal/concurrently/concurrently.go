// Package concurrently does the same with several things at once.
package concurrently

import "golang.org/x/sync/errgroup"

// Each calls do for each thing, for up to atOnce at a time, and returns the error of each. An error keeps no other thing
// from being done, as errgroup's contexts would.
func Each[T any](things []T, atOnce int, do func(T) error) []error {
	failed := make([]error, len(things))
	var all errgroup.Group
	all.SetLimit(atOnce)
	for i, thing := range things {
		all.Go(func() error {
			failed[i] = do(thing)
			return nil
		})
	}
	_ = all.Wait()
	return failed
}
