package driver












