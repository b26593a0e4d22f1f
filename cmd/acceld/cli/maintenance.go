package cli

// printMaintenance writes who else works on the node.
func printMaintenance(s *tableWriter, m shown) {
	for _, x := range m.Facts.Maintenance {
		s.line(0, s.wait("maintenance")+"  "+plain(x.String()))
	}
}
