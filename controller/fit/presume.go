package fit

// presume counts the pods that ask for cards and for which nobody chose any: they were bound before there was an
// extender, or without one. Which cards they have is not known here, but their share must not be given to others. Each
// is counted on the cards that it would get after all others; if there are none, on no card. All of them share the
// budget of one pod: whoever creates pods with a node's name can create many.
func (n *Node) presume() {
	var all []*Record
	for _, r := range n.records {
		if r.unplaced() {
			all = append(all, r)
		}
	}
	n.unplaced = len(all) > 0
	if n.broken != Fits {
		return
	}
	budget := Budget
	for _, r := range sortRecords(all) {
		shape := *r.Shape
		shape.Wide = nil // which is counted wherever the cards are
		s := NewSearch(n.rules, &Request{UID: r.UID, Namespace: r.Namespace(), Name: r.Name, Shape: &shape})
		s.total = budget
		placed := &Record{UID: r.UID, namespace: r.namespace, Name: r.Name, Shape: &shape}
		cause := s.on(n, n.now(), placed)
		if budget = s.total; cause != Fits {
			continue
		}
		if n.presumed == nil {
			n.presumed = map[UID]*Record{}
		}
		n.presumed[r.UID] = placed
		n.add(placed)
	}
}
