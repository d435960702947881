// Package measure does the work that measurements are of: passes and stages of a session
// on random ids, with a cache filled as far as asked.
package measure
