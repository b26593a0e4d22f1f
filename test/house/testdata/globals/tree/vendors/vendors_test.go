package vendors

var update bool
