# What people do in a shell, in a tree with data/, out/ and notes.txt; prints what it sees.
cd "$1" || exit 1
see() { find . -printf '%P %y %s %m %l\n' | sed 's/^\(.* d\) [0-9]*/\1 -/' | sort; }
cp -a data copy && diff -r data copy && echo same
mv copy copy2; mv notes.txt out/; see
sed -i 's/line/LINE/' out/notes.txt; cat out/notes.txt
touch -d @1000000000 data/values.bin; stat -c '%Y %s %a' data/values.bin
touch fresh; chmod 600 fresh; chmod -R go-rwx data; chmod 700 data; see
ln -s data/values.bin symbolic; ln out/notes.txt hard; cat hard; stat -c %h hard out/notes.txt
readlink symbolic; readlink -f symbolic | sed "s|$1||"
tar -cf archive.tar data out; tar -tf archive.tar | sort; mkdir unpacked; tar -xf archive.tar -C unpacked; diff -r data unpacked/data && echo unpacked
find . -name '*.bin' | sort; find . -type d -empty | sort; du -a --apparent-size data | wc -l
rm -rf data; ls -A; mkdir data; ls -A data; echo again > data/values.bin; cat data/*
rm -rf unpacked copy2; rmdir nothing 2>&1; rmdir out 2>&1
echo one > list; echo two >> list; sort -r list -o list; cat list; echo three | tee -a list > /dev/null; wc -l < list
mkdir -p deep/a/b/c; cp list deep/a/b/c; mv deep/a shallow; rm -r deep; see
install -m 640 list installed; stat -c %a installed; truncate -s 100 installed; stat -c %s installed
dd if=/dev/zero of=zeros bs=1k count=3 2> /dev/null; cksum zeros; cat < zeros | wc -c
ls -l / > /dev/null && echo fine; pwd | sed "s|$1||"; (cd shallow/b && pwd | sed "s|$1||" && echo x > ../y && ls ..)
mkfifo pipe; (echo through > pipe &) ; cat pipe; rm pipe
echo a > 'name with blank'; for name in *; do echo "$name"; done
mv list "other list"; mv -n hard installed; see
if command -v git > /dev/null; then
    git init -q repository && cd repository && git config user.email a@b && git config user.name a && echo x > x && git add x && git -c commit.gpgsign=false commit -qm first && git status --short && git log --format=%s
fi
