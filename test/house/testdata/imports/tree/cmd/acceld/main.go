package main

import _ "example.com/house/vendors"
