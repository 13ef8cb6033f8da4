"""A stand-in for go that can be slow, fail and be killed."""

from __future__ import annotations

import json
from pathlib import Path

GO = r"""#!/bin/sh
F=@FAKE@
echo "$*" >> $F/calls
case "$1 $2" in
"env GOVERSION") cat $F/version;;
"env -json") echo "{\"GOCACHE\": \"$F/gocache\", \"GOMODCACHE\": \"$F/mod\"}";;
"mod download") cat $F/download.json;;
build*)
  env > $F/env
  echo "go: downloading example.com/a v1.0.0" >&2
  echo "internal/abi" >&2
  if [ -e $F/fail ]; then cat $F/fail >&2; exit 1; fi
  if [ -e $F/hold ]; then
    sh -c "while [ -e $F/hold ]; do sleep 0.02; done" & echo $! > $F/born
    mv $F/born $F/child
    wait
  fi
  while [ "$1" != -o ]; do
    if [ "$1" = -overlay ]; then cp go.mod $F/altered.mod; cp -r "$(dirname "$2")" $F/altered; fi
    shift
  done
  o=$2; shift; shift
  v=$(sed -n 's/^require [^ ]* v//p' go.mod)
  for p; do
    [ -d $o ] && f=$o/${p##*/} || f=$o
    printf '#!/bin/sh\necho Version: v%s\nexit 0\n' "$v" > $f
  done;;
"list "*) printf 'a\nb\nc\n';;
esac
"""


class FakeGo:
    """A directory that steers the stand-in."""

    def __init__(self, root: Path) -> None:
        self.root = root
        module = root / "module"
        module.mkdir(parents=True)
        (module / "go.sum").write_text("")
        (root / "go.mod").write_text("module k8s.io/kubernetes\n\ngo 1.26.0\n")
        (root / "download.json").write_text(json.dumps({"Dir": str(module), "GoMod": str(root / "go.mod")}))
        (root / "version").write_text("go1.26.1\n")
        (root / "bin").mkdir()
        (root / "bin/go").write_text(GO.replace("@FAKE@", str(root)))
        (root / "bin/go").chmod(0o755)

    def builds(self) -> list[str]:
        """What was built, in order."""
        calls = (self.root / "calls").read_text().splitlines() if (self.root / "calls").exists() else []
        asked = [c.partition(" -o ")[2].split()[1:] for c in calls if c.startswith("build")]
        return [package.rsplit("/", 1)[-1] for packages in asked for package in packages]
