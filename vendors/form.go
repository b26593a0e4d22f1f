package vendors

import (
	"regexp"

	"github.com/acceld/acceld/accel"
)

// What texts of a definition look like.
var (
	kindText     = regexp.MustCompile(`^(?:[a-z0-9]+(-[a-z0-9]+)+)$`)
	domainText   = regexp.MustCompile(`^(?:[a-z0-9]([a-z0-9.-]*[a-z0-9])?)$`)
	moduleText   = regexp.MustCompile(`^(?:[A-Za-z0-9_]+)$`)
	driverText   = regexp.MustCompile(`^(?:[A-Za-z0-9_-]+( [A-Za-z0-9_-]+)*)$`)
	libraryText  = regexp.MustCompile(`^(?:[A-Za-z0-9_+.-]+\.so(\.[A-Za-z0-9_.-]+)?)$`) // of a soname
	programText  = regexp.MustCompile(`^(?:[A-Za-z0-9_][A-Za-z0-9_+.-]*)$`)
	envText      = regexp.MustCompile(`^(?:[A-Za-z_][A-Za-z0-9_]*=[^\x00]*)$`)
	makeText     = regexp.MustCompile(`^(?:({{.*}}|[A-Za-z_][A-Za-z0-9_]*=)[^\x00\n]*)$`)
	idText       = regexp.MustCompile(`^(?:[0-9a-f]{4})$`)
	classText    = regexp.MustCompile(`^(?:[0-9a-f]{0,6})$`)
	nameText     = regexp.MustCompile(`^(?:[A-Za-z0-9][A-Za-z0-9_.,:@+-]{0,127})$`)
	modeText     = regexp.MustCompile(`^(?:0[0-7]{3})$`)
	accessText   = regexp.MustCompile(`^(?:r?w?m?)$`)
	metricText   = regexp.MustCompile(`^(?:[a-z_]+)$`)
	capacityText = regexp.MustCompile(`^(?:[A-Za-z_][A-Za-z0-9_]{0,31})$`)
	systemText   = regexp.MustCompile(`^(?:\*|[a-z0-9][a-z0-9._-]*)$`)
	packageText  = regexp.MustCompile(`^(?:[A-Za-z0-9][A-Za-z0-9+._-]*)$`)
	podText      = regexp.MustCompile(`^(?:[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?/[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?)$`)
	counterText  = regexp.MustCompile(`^(?:[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)$`)
)

func stateForm() accel.Form {
	return accel.Form{Expr: counterText, Say: "a name of lower-case letters, digits and dashes, such as fabric"}
}

func podForm() accel.Form {
	return accel.Form{Expr: podText, Say: "a namespace and a name, such as kube-system/fabric-manager"}
}

func containerForm() accel.Form {
	return accel.Form{Expr: counterText, Say: "the name of a container, such as main"}
}

func kindForm() accel.Form {
	return accel.Form{Expr: kindText, Say: "a kind: <vendor>-<hardware> in lower case, such as example-npu"}
}

func domainForm() accel.Form {
	return accel.Form{Expr: domainText, Say: "a domain in lower case, such as example.com"}
}

func moduleForm() accel.Form {
	return accel.Form{Expr: moduleText, Say: "a name of letters, digits and underscores, as lsmod has it"}
}

func driverForm() accel.Form {
	return accel.Form{Expr: driverText, Say: "the name of a driver: words of letters, digits, dashes and underscores"}
}

func libraryForm() accel.Form {
	return accel.Form{Expr: libraryText, Say: "the name of a library without its directory, such as libnpu.so.1"}
}

func programForm() accel.Form {
	return accel.Form{Expr: programText, Say: "the name of a program without its directory, such as npu-smi"}
}

func envForm() accel.Form {
	return accel.Form{Expr: envText, Say: "a variable with its value, such as NPU_MODE=fast"}
}

func makeForm() accel.Form {
	return accel.Form{Expr: makeText, Say: "a variable of make with its value, such as CONFIG_NPU=m"}
}

func idForm() accel.Form {
	return accel.Form{Expr: idText, Say: "four hexadecimal digits in lower case without 0x, such as 10de"}
}

func classForm() accel.Form {
	return accel.Form{Expr: classText, Say: "the start of a PCI class: up to six hexadecimal digits without 0x, such as 0302"}
}

func modeForm() accel.Form {
	return accel.Form{Expr: modeText, Say: "permissions as chmod takes them, with the zero in front, such as 0666"}
}

func accessForm() accel.Form {
	return accel.Form{Expr: accessText, Say: "one or more of r, w and m in this order, such as rw"}
}

func metricForm() accel.Form {
	return accel.Form{Expr: metricText, Say: "the name of a metric: lower case letters and underscores"}
}

func capacityForm() accel.Form {
	return accel.Form{Expr: capacityText, Say: "a name of up to 32 letters, digits and underscores, such as memory"}
}

func systemForm() accel.Form {
	return accel.Form{Expr: systemText, Say: `the id of a distribution in lower case, such as debian12, or "*"`}
}

func packageForm() accel.Form {
	return accel.Form{Expr: packageText, Say: "the name of a package"}
}

func counterForm() accel.Form {
	return accel.Form{Expr: counterText, Say: "a name of lower case letters, digits and dashes, such as memory-slices"}
}
