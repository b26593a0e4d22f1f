#!/bin/sh
# Installs acceld @<.Version>@ on this host: the deb or the rpm where the host has such packages, and the programs
# themselves elsewhere. It installs nothing before it has verified what it downloaded. Run it with --help for its options.
set -eu

version='@<.Version>@'
url='@<.URL>@'
key='@<.Key>@'
format=''
root=''
download=''

usage() {
	cat <<EOF
Usage: sh install.sh [options]
Installs acceld $version.
  --url URL           where the release is${url:+ (default $url)}
  --from DIR          the release is in this directory, nothing is downloaded
  --format FORMAT     deb, rpm or tar; the host's own by default
  --root DIR          unpack the programs below this directory (with --format tar)
  --download DIR      download and verify into this directory, install nothing
EOF
}

die() {
	echo "install.sh: $*" >&2
	exit 1
}

needs() { command -v "$1" >/dev/null 2>&1 || die "cannot find $1, which $2"; }

# fetch NAME: brings a file of the release into the work directory, at most 400 MB of it.
fetch() {
	if [ -n "$from" ]; then
		cp -- "$from/$1" "$work/$1" 2>/dev/null || die "cannot find $1 in $from"
	elif command -v curl >/dev/null 2>&1; then
		curl --proto '=https,http' --fail --silent --show-error --location --max-redirs 5 --retry 3 --max-time 1800 \
			--max-filesize 400000000 --output "$work/$1" "$url/$1" || die "cannot download $url/$1"
	else
		needs wget "downloads the release, and no curl either"
		wget -q -T 60 -t 3 -O "$work/$1" "$url/$1" || die "cannot download $url/$1"
	fi
}

# main is called in the last line, so that a script of which only a part arrived does nothing.
main() {
	from=''
	while [ $# -gt 0 ]; do
		case $1 in
		--help) usage; exit 0 ;;
		--url | --from | --format | --root | --download)
			[ $# -gt 1 ] || die "$1 needs a value"
			case $1 in
			--url) url=${2%/} ;;
			--from) from=$2 ;;
			--format) format=$2 ;;
			--root) root=$2 ;;
			--download) download=$2 ;;
			esac
			shift 2 ;;
		*) die "unknown option $1; see --help" ;;
		esac
	done
	[ -n "$url$from" ] || die "say where the release is: --url or --from"
	case $(uname -m) in
	x86_64) arch=amd64 rpmarch=x86_64 ;;
	aarch64) arch=arm64 rpmarch=aarch64 ;;
	*) die "there are no programs for $(uname -m)" ;;
	esac
	if [ -z "$format" ]; then
		if [ -n "$root" ]; then format=tar
		elif command -v dpkg >/dev/null 2>&1; then format=deb
		elif command -v rpm >/dev/null 2>&1; then format=rpm
		else format=tar; fi
	fi
	[ -z "$root" ] || [ "$format" = tar ] || die "--root is for --format tar only"
	needs sha256sum "verifies the release"

	umask 022
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	trap 'exit 130' INT TERM
	fetch SHA256SUMS
	if [ -n "$key" ]; then
		needs openssl "verifies the signature of the release"
		fetch SHA256SUMS.sig
		printf '%s\n' "$key" >"$work/key"
		openssl base64 -d -in "$work/SHA256SUMS.sig" -out "$work/signature" 2>/dev/null || die "the signature is unreadable"
		openssl dgst -sha256 -verify "$work/key" -signature "$work/signature" "$work/SHA256SUMS" >/dev/null 2>&1 ||
			die "the signature of the release is wrong: nothing was installed"
		echo "signature verified"
	else
		echo "this release is not signed: only checksums are verified" >&2
	fi
	case $format in
	deb) pattern="^acceld_[^_/]*_$arch\\.deb\$" ;;
	rpm) pattern="^acceld-[^/]*\\.$rpmarch\\.rpm\$" ;;
	tar) pattern="^acceld-[^/]*-linux-$arch\\.tar\\.gz\$" ;;
	*) die "unknown format $format: want deb, rpm or tar" ;;
	esac
	name=$(sed 's/^[0-9a-f]*  //' "$work/SHA256SUMS" | grep -e "$pattern") || die "the release has no $format for $arch"
	case $name in *"
"*) die "the release has several: $name" ;; esac
	fetch "$name"
	(cd "$work" && grep -x -e "[0-9a-f]*  $name" SHA256SUMS | sha256sum --check --strict --status -) ||
		die "the checksum of $name is wrong: nothing was installed"
	echo "checksum verified: $name"

	if [ -n "$download" ]; then
		mkdir -p -- "$download"
		cp -- "$work/$name" "$work/SHA256SUMS" "$download/"
		echo "$download/$name"
		return
	fi
	if [ -z "$root" ]; then
		[ "$(id -u)" = 0 ] || die "installing needs root; --download only downloads and verifies"
	fi
	case $format in
	deb)
		if command -v apt-get >/dev/null 2>&1; then
			chmod 755 "$work"
			DEBIAN_FRONTEND=noninteractive apt-get install -q -y --allow-downgrades -o Dpkg::Options::=--force-confold "$work/$name"
		else dpkg -i "$work/$name"; fi ;;
	rpm)
		if command -v dnf >/dev/null 2>&1; then
			dnf install -y --setopt=localpkg_gpgcheck=0 "$work/$name" || dnf downgrade -y --setopt=localpkg_gpgcheck=0 "$work/$name"
		else rpm --upgrade --oldpackage --replacepkgs "$work/$name"; fi ;;
	tar)
		mkdir -p -- "$root/"
		tar -xzf "$work/$name" --strip-components=1 --no-same-owner -C "$root/"
		if [ -z "$root" ] && [ -d /run/systemd/system ]; then
			systemctl daemon-reload
			systemctl enable --now acceld.socket acceld.service
		fi ;;
	esac
	echo "acceld $version is installed${root:+ below $root}"
}

main "$@"
