package build

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
)

func TestDiagnosis(t *testing.T) {
	for _, c := range []struct {
		name, output, message string
		reason                accel.Reason
	}{
		{
			"gcc",
			"make[1]: Entering directory '/usr/src/linux'\n  CC [M]  /w/edu_main.o\n/w/edu_main.c: In function 'edu_probe':\n/w/edu_main.c:12:9: warning: unused\n" +
				"/w/edu_main.c:17:9: error: implicit declaration of function 'pci_nonsense' [-Werror]\n/w/edu_main.c:18:9: error: second\nmake[3]: *** [Makefile:250: /w/edu_main.o] Error 1\n",
			"edu_main.c:17:9: error: implicit declaration of function 'pci_nonsense' [-Werror]", accel.BuildFailed,
		},
		{
			"missing header",
			"/w/a.c:1:10: fatal error: linux/nope.h: No such file or directory\ncompilation terminated.\n",
			"a.c:1:10: fatal error: linux/nope.h: No such file or directory", accel.BuildFailed,
		},
		{
			"clang", "/w/x/b.c:3:5: error: use of undeclared identifier 'q'\n1 error generated.\n",
			"x/b.c:3:5: error: use of undeclared identifier 'q'", accel.BuildFailed,
		},
		{
			"modpost",
			"ERROR: modpost: \"frobnicate\" [/w/edu.ko] undefined!\nmake[2]: *** [scripts/Makefile.modpost:126: /w/Module.symvers] Error 1\n",
			`ERROR: modpost: "frobnicate" [edu.ko] undefined!`, accel.BuildFailed,
		},
		{
			"gpl", "ERROR: modpost: GPL-incompatible module edu.ko uses GPL-only symbol 'x'\n",
			"ERROR: modpost: GPL-incompatible module edu.ko uses GPL-only symbol 'x'", accel.BuildFailed,
		},
		{
			"disk",
			"/w/a.c:9:1: error: whatever\n/w/a.c: fatal error: error writing to /tmp/x.s: No space left on device\n",
			"a.c: fatal error: error writing to /tmp/x.s: No space left on device", accel.NoSpace,
		},
		{
			"linker disk", "ld: final link failed: No space left on device\n",
			"ld: final link failed: No space left on device", accel.NoSpace,
		},
		{
			"killed",
			"gcc: fatal error: Killed signal terminated program cc1\ncompilation terminated.\nmake[2]: *** [a.o] Error 1\n",
			"gcc: fatal error: Killed signal terminated program cc1", accel.BuildOutOfMemory,
		},
		{
			"killed make", "make[2]: *** [scripts/Makefile.build:250: /w/a.o] Killed\n",
			"make[2]: *** [scripts/Makefile.build:250: a.o] Killed", accel.BuildOutOfMemory,
		},
		{
			"no compiler", "/bin/sh: 1: gcc-12: not found\nmake[2]: *** [a.o] Error 127\n",
			"/bin/sh: 1: gcc-12: not found", accel.CompilerMissing,
		},
		{
			"no compiler, make says", "make[2]: gcc-12: No such file or directory\n",
			"make[2]: gcc-12: No such file or directory", accel.CompilerMissing,
		},
		{
			"no program",
			"  BTF [M] /w/edu.ko\n/bin/sh: 1: pahole: not found\nmake[2]: *** [/usr/src/linux/Makefile.modfinal:57: /w/edu.ko] Error 127\n",
			"/bin/sh: 1: pahole: not found", accel.BuildFailed,
		},
		{
			"no program, says bash", "bash: line 1: bc: command not found\nmake[1]: *** [Makefile:9: x] Error 127\n",
			"bash: line 1: bc: command not found", accel.BuildFailed,
		},
		{
			"no program, says make", "make[1]: flex: No such file or directory\nmake[1]: *** [Makefile:9: x] Error 127\n",
			"make[1]: flex: No such file or directory", accel.BuildFailed,
		},
		{
			"a program that is not needed",
			"/bin/sh: 1: pahole: not found\n/w/a.c:1:1: error: x\nmake[1]: *** [Makefile:9: x] Error 1\n",
			"a.c:1:1: error: x", accel.BuildFailed,
		},
		{
			"assembler", "/w/a.S:3: Error: no such instruction: `foo'\n", "a.S:3: Error: no such instruction: `foo'",
			accel.BuildFailed,
		},
		{
			"no rule", "make[1]: *** No rule to make target 'modules'.  Stop.\n",
			"make[1]: *** No rule to make target 'modules'.  Stop.", accel.BuildFailed,
		},
		{
			"vendor's own words", "Makefile:12: *** This kernel is too old.  Stop.\n",
			"Makefile:12: *** This kernel is too old.  Stop.", accel.BuildFailed,
		},
		{
			"colours", "\x1b[01m\x1b[K/w/a.c:1:2:\x1b[m\x1b[K \x1b[01;31m\x1b[Kerror: \x1b[m\x1b[Kbad\n",
			"a.c:1:2: error: bad", accel.BuildFailed,
		},
		{
			"two compilers at once",
			"/w/a.c:3:4: warning: fine\n/w/b.c: In function 'f':\n/w/a.c:9:9: note: here\n/w/b.c:7:1: error: real\nmake[3]: *** [x: /w/b.o] Error 1\nmake[3]: *** Waiting for unfinished jobs....\n/w/c.c:1:1: error: later\n",
			"b.c:7:1: error: real", accel.BuildFailed,
		},
		{
			"objtool",
			"/w/edu.o: warning: objtool: f()+0x1: unreachable instruction\n/w/edu.o: error: objtool: f() falls through to next function g()\nmake[2]: *** [x: /w/edu.o] Error 255\n",
			"edu.o: error: objtool: f() falls through to next function g()", accel.BuildFailed,
		},
		{
			"linker", "/usr/bin/ld: /w/a.o: in function `f':\na.c:(.text+0x1): undefined reference to `g'\n",
			"a.c:(.text+0x1): undefined reference to `g'", accel.BuildFailed,
		},
		{"lld", "ld.lld: error: undefined symbol: g\n", "ld.lld: error: undefined symbol: g", accel.BuildFailed},
		{"old modpost", "ERROR: \"g\" [/w/edu.ko] undefined!\n", `ERROR: "g" [edu.ko] undefined!`, accel.BuildFailed},
		{
			"quotes of a locale", "/w/a.c:223:9: error: too few arguments to function ‘f’\n",
			"a.c:223:9: error: too few arguments to function ‘f’", accel.BuildFailed,
		},
		{
			"no rule, in the tree", "make[3]: *** No rule to make target '/w/a.o', needed by '/w/edu.o'.  Stop.\n",
			"make[3]: *** No rule to make target 'a.o', needed by 'edu.o'.  Stop.", accel.BuildFailed,
		},
		{
			"address space", "cc1: out of memory allocating 1048576 bytes after a total of 4096 bytes\n",
			"cc1: out of memory allocating 1048576 bytes after a total of 4096 bytes", accel.BuildOutOfMemory,
		},
		{"other words", "something odd\n", "something odd (exit status 2)", accel.BuildFailed},
		{"silence", "", "make ended without a word: exit status 2", accel.BuildFailed},
		{"no line end", "/w/a.c:1:1: error: x", "a.c:1:1: error: x", accel.BuildFailed},
	} {
		for _, piece := range []int{1, 7, 1 << 20} { // however the pipe splits the output
			var progress []string
			d := newDiagnosis(io.Discard, "/w", func(n int, l string) {
				progress = append(progress, fmt.Sprint(n, ": ", l))
			})
			for rest := c.output; rest != ""; {
				n := min(piece, len(rest))
				_, _ = d.Write([]byte(rest[:n]))
				rest = rest[n:]
			}
			p := d.problem("make", errors.New("exit status 2"))
			if p.Reason != c.reason || p.Message != c.message {
				t.Errorf("%s in pieces of %d: %s: %s", c.name, piece, p.Reason, p.Message)
			}
			if c.name == "gcc" && cmp.Diff([]string{"1: CC [M] edu_main.o"}, progress) != "" {
				t.Error(progress)
			}
		}
	}
}

type fullDisk struct{ left int }

func (f *fullDisk) Write(b []byte) (int, error) {
	if f.left -= len(b); f.left < 0 {
		return 0, &accel.Problem{Reason: accel.NoSpace, Message: "full"}
	}
	return len(b), nil
}

func TestDiagnosisIsBounded(t *testing.T) {
	var log strings.Builder
	d := newDiagnosis(&log, "/w", func(int, string) {})
	line := strings.Repeat("x", 1<<20)
	for range 20 {
		if n, err := d.Write([]byte(line)); n != len(line) || err != nil {
			t.Fatal(n, err)
		}
	}
	if log.Len() > buildLogLimit || len(d.part) > 1<<20 {
		t.Errorf("log of %d bytes, line of %d", log.Len(), len(d.part))
	}
	d = newDiagnosis(&fullDisk{left: 5}, "/w", func(int, string) {})
	if n, err := d.Write([]byte("a.c:1:1: error: x\n")); n != 18 || err != nil {
		t.Error("a full disk stopped the build's pipe", n, err)
	}
}
