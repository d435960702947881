package tasks

// chosenShape names a shape of a task in a type.
type chosenShape struct{ task, shape, dtype string }

// Few leaves in the suite at most so many shapes of each task, in whatever type, from the first to the last as far
// apart as they can be.
func (s *Suite) Few(each int) {
	only := map[chosenShape]bool{}
	for _, t := range s.Tasks {
		var all []chosenShape
		for _, dtype := range t.DTypes {
			for _, shape := range t.Sizes {
				if s.has(t, shape, dtype) {
					all = append(all, chosenShape{t.Name, shape.String(), dtype})
				}
			}
		}
		for i := range min(each, len(all)) {
			only[all[i*(len(all)-1)/max(1, min(each, len(all))-1)]] = true
		}
	}
	s.only = only
}
