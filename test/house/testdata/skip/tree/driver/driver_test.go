package driver

import "testing"

func TestA(t *testing.T) {
	t.SkipNow()
	t.Skip()
	t.Skip(reason())
	t.Skip("later")
	t.Skip("needs the test bed: set ACCELD_TESTBED")
	t.Skipf("needs a program %s of the host", "modinfo")
}
