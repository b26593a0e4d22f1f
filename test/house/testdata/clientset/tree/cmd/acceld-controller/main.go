package main

import _ "k8s.io/client-go/kubernetes"
