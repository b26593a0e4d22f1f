package host

import _ "example.com/house/driver"
