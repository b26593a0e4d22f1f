package build

import (
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
)

func parsed(t *testing.T, text string) *dkmsConf {
	t.Helper()
	c, problem := parseDKMS("/usr/src/x-1/dkms.conf", []byte(text))
	if problem != nil {
		t.Fatal(problem)
	}
	c.facts = map[string]string{
		"kernelver": "6.1.0-9-amd64", "kernel_source_dir": "/k/build", "dkms_tree": "/d",
		"module": "x", "module_version": "1", "arch": "x86_64",
	}
	return c
}

const named = "PACKAGE_NAME=x\nPACKAGE_VERSION=1\n"

// TestDKMSForms reads the forms that packages use: each kind of quotes, several lines, patches by kernel, names and
// destinations of modules, and commands that need the shell.
func TestDKMSForms(t *testing.T) {
	for name, c := range map[string]struct {
		text, release, make string
		module, file        string
		variable            string
	}{
		"quoted make, as a GPU's": {
			"# comment\nMAKE[0]=\"'make' -j4 NV_EXCLUDE='' KERNEL_UNAME=${kernelver} modules\"\nBUILT_MODULE_NAME[0]=\"gpu\"\nDEST_MODULE_LOCATION[0]=\"/kernel/drivers/video\"\nBUILT_MODULE_NAME[1]=\"gpu-uvm\"\nDEST_MODULE_LOCATION[1]=\"/kernel/drivers/video\"\n",
			"", "'make' -j4 NV_EXCLUDE='' KERNEL_UNAME=${kernelver} modules", "gpu_uvm", "/gpu-uvm.ko", "",
		},
		"environment and jobs": {
			"MAKE[0]=\"env V=1 make ${parallel_jobs+-j$parallel_jobs} modules KVER=${kernelver}\"\n", "",
			"env V=1 make ${parallel_jobs+-j$parallel_jobs} modules KVER=${kernelver}", "", "", "",
		},
		"no make": {
			"BUILT_MODULE_NAME[0]=\"x\"\nAUTOINSTALL=yes\n", "",
			`make -C "$kernel_source_dir" M="$dkms_tree/$module/$module_version/build"`, "x", "/x.ko", "",
		},
		"unindexed": {
			"MAKE=\"make -C $kernel_source_dir M=$dkms_tree/x/1/build\"\nBUILT_MODULE_NAME=$PACKAGE_NAME\nBUILT_MODULE_LOCATION=src/\n",
			"", "make -C $kernel_source_dir M=$dkms_tree/x/1/build", "x", "/src/x.ko", "",
		},
		"renamed": {
			"BUILT_MODULE_NAME[0]=old\nDEST_MODULE_NAME[0]=new\nBUILT_MODULE_LOCATION[0]=\"./a/b\"\n", "", "",
			"new", "/a/b/old.ko", "",
		},
		"by kernel": {
			"MAKE[0]=\"make new\"\nMAKE[1]=\"make old\"\nMAKE_MATCH[1]=\"^(2\\.6|6\\.1)\"\n", "6.1.0-9-amd64",
			"make old", "", "", "",
		},
		"not by this kernel": {
			"MAKE[0]=\"make new\"\nMAKE[1]=\"make old\"\nMAKE_MATCH[1]='^2\\.6'\n", "6.1.0-9-amd64",
			"make new", "", "", "",
		},
		"own variable": {
			"SRC=\"drivers/$module\"\nMAKE[0]=\"make -C $SRC\"\nBUILT_MODULE_NAME[0]=x\nBUILT_MODULE_LOCATION[0]=\"$SRC\"\n",
			"", "make -C $SRC", "x", "/drivers/x/x.ko", "SRC=drivers/x",
		},
		"several lines": {
			"MAKE[0]=\"make \\\n  -C src \\\n  all\"; CLEAN=\"make clean\"\n", "", "make   -C src   all", "", "", "",
		},
		"a command for the shell": {
			"MAKE[0]=\"make -j$(nproc --ignore=\"1\") KDIR=/lib/modules/$kernelver/build\"\n",
			"", "make -j$(nproc --ignore=\"1\") KDIR=/lib/modules/$kernelver/build", "", "", "",
		},
		"escapes": {"MAKE[0]=\"echo \\\"a\\\" \\$HOME \\`x\\`\"\n", "", "echo \"a\" $HOME `x`", "", "", ""},
		"single quotes": {
			"MAKE[0]='make KDIR=\"$kernel_source_dir\"'\n", "", `make KDIR="$kernel_source_dir"`, "",
			"", "",
		},
		"joined quotes":    {"MAKE[0]=make\\ \"a b\"' c'\n", "", "make a b c", "", "", ""},
		"carriage returns": {"AUTOINSTALL=\"yes\"\r\nMAKE[0]=\"make all\"\r\n", "", "make all", "", "", ""},
		"exported":         {"export FLAGS=-O2\nMAKE[0]=\"make\"\n", "", "make", "", "", "FLAGS=-O2"},
	} {
		t.Run(name, func(t *testing.T) {
			conf := parsed(t, named+c.text)
			if c.make != "" {
				text, problem := conf.makeText(c.release)
				if problem != nil || text != c.make {
					t.Errorf("make is %q, %v, want %q", text, problem, c.make)
				}
			}
			if c.module != "" {
				file, problem := conf.module(c.module)
				if problem != nil || file != c.file {
					t.Errorf("%s is at %q, %v, want %q", c.module, file, problem, c.file)
				}
			}
			all, problem := conf.variables()
			if problem != nil || c.variable != "" && !strings.Contains(strings.Join(all, "\n")+"\n", c.variable+"\n") {
				t.Errorf("variables %v, %v, want %q", all, problem, c.variable)
			}
			if strings.Contains(strings.Join(all, "\n"), "\nMAKE") {
				t.Errorf("a directive is in the environment: %v", all)
			}
		})
	}
}

func TestDKMSRefusals(t *testing.T) {
	for name, c := range map[string]struct{ text, says string }{
		"condition": {
			named + "if [ -f /etc/x ]; then\nMAKE[0]=y\nfi\n",
			`dkms.conf:3: "if [ -f /etc/x ]; then" is not an assignment`,
		},
		"function":       {named + "\n\nf() { :; }\n", `dkms.conf:5: "f() { :; }" is not`},
		"command":        {named + "MAKE[0]=x\nuname -r\n", `dkms.conf:4: "uname -r" is not`},
		"placeholder":    {named + "__MODULES\n", `dkms.conf:3: "__MODULES"`},
		"list":           {named + "MAKE=(a b)\n", "MAKE has a list in parentheses"},
		"open quote":     {named + "MAKE[0]=\"make\nCLEAN=x\n", "has no end"},
		"open single":    {named + "MAKE[0]='make\n", "has no end"},
		"no name":        {"PACKAGE_VERSION=1\n", `PACKAGE_NAME is ""`},
		"way out":        {"PACKAGE_NAME=../../etc\nPACKAGE_VERSION=1\n", `dkms.conf:1: PACKAGE_NAME is "../../etc"`},
		"way out by dot": {"PACKAGE_NAME=..\nPACKAGE_VERSION=1\n", `PACKAGE_NAME is ".."`},
		"name from run":  {"PACKAGE_NAME=\"$(cat name)\"\nPACKAGE_VERSION=1\n", "neither a variable of DKMS"},
		"append":         {named + "MAKE[0]+=x\n", "is not an assignment"},
		"pipe":           {named + "X=a|b\n", "outside quotes"},
	} {
		_, problem := parseDKMS("/usr/src/x-1/dkms.conf", []byte(c.text))
		if problem == nil || problem.Reason != accel.SourceInvalid || !strings.Contains(problem.Message, c.says) ||
			!strings.Contains(problem.Message, "/usr/src/x-1/dkms.conf:") {
			t.Errorf("%s: %v, want %q", name, problem, c.says)
		}
	}
	conf := parsed(t, named+"\nBUILT_MODULE_NAME[0]=\"$(ls)\"\nA=\"$B\"\nB=$A\n")
	if _, problem := conf.module("x"); problem == nil || !strings.Contains(problem.Message, "dkms.conf:4:") {
		t.Error(problem)
	}
	if _, problem := conf.value("A"); problem == nil || !strings.Contains(problem.Message, "names itself") {
		t.Error(problem)
	}
}

func TestDKMSExclusive(t *testing.T) {
	const config = "CONFIG_A=y\nCONFIG_B=m\n# CONFIG_C is not set\n"
	for text, says := range map[string]string{
		"":                                                       "",
		"BUILD_EXCLUSIVE_KERNEL=\"^6\\.\"":                       "",
		"BUILD_EXCLUSIVE_KERNEL='^(5\\.|4\\.)'":                  `:3: the source is only for BUILD_EXCLUSIVE_KERNEL "^(5\\.|4\\.)"`,
		"BUILD_EXCLUSIVE_KERNEL_MIN=6.1":                         "",
		"BUILD_EXCLUSIVE_KERNEL_MIN=6.2":                         "BUILD_EXCLUSIVE_KERNEL_MIN",
		"BUILD_EXCLUSIVE_KERNEL_MAX=6.10.0":                      "",
		"BUILD_EXCLUSIVE_KERNEL_MAX=5.19":                        "BUILD_EXCLUSIVE_KERNEL_MAX",
		"BUILD_EXCLUSIVE_ARCH=\"(x86_64|i.86)\"":                 "",
		"BUILD_EXCLUSIVE_ARCH=aarch64":                           "BUILD_EXCLUSIVE_ARCH",
		"BUILD_EXCLUSIVE_CONFIG=\"CONFIG_A CONFIG_B !CONFIG_C\"": "",
		"BUILD_EXCLUSIVE_CONFIG=\"!CONFIG_A\"":                   "BUILD_EXCLUSIVE_CONFIG",
		"BUILD_EXCLUSIVE_KERNEL=\"(\"":                           "missing closing )",
	} {
		problem := parsed(t, named+text+"\n").exclusive(accel.Kernel{Release: "6.1.0-9-amd64", Arch: "x86_64"}, config)
		if (problem == nil) != (says == "") || problem != nil && !strings.Contains(problem.Message, says) {
			t.Errorf("%s: %v, want %q", text, problem, says)
		}
	}
}

func TestMakeFlags(t *testing.T) {
	got := makeFlags(3, []string{"A=b c", `D=\e$f`})
	if want := `-j3 -- A=b\ c D=\\e$$f`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// FuzzParseDKMS parses arbitrary content.
func FuzzParseDKMS(f *testing.F) {
	f.Add([]byte(named + "MAKE[0]=\"make $(a \"b\") ${c}\"\nX='a'\\\nb\n"))
	f.Fuzz(func(_ *testing.T, b []byte) {
		c, problem := parseDKMS("f", b)
		if problem != nil {
			return
		}
		_, _ = c.variables()
		_, _ = c.module("x")
		_, _ = c.makeText("6.1")
	})
}

// TestDKMSVersionFromVariable: the directory that DKMS's own make command names is that of the expanded version.
func TestDKMSVersionFromVariable(t *testing.T) {
	c, problem := parseDKMS("/usr/src/x-2/dkms.conf", []byte("V=2\nPACKAGE_NAME=x\nPACKAGE_VERSION=\"$V\"\n"))
	if problem != nil {
		t.Fatal(problem)
	}
	if got := c.work(); got != "dkms/x/2/build" {
		t.Errorf("the source is copied to %q", got)
	}
}
