//! Every branch sees what was written before it, and nothing of its siblings.

use crate::world::{World, command, fingerprint};

const PROGRAM: &str = r#"
import ctypes, json, os, subprocess, sys
root, scratch = sys.argv[1:3]
os.chdir(root)
branch = ctypes.CDLL(None).brimful_redirect_branch
open("before", "w").write("before")
os.remove("out/last.pt")
open("cache/early", "w").write("early")
seen = []
for name in ("t4", "l4"):
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        assert branch(f"{scratch}/{name}".encode()) == 0
        found = [sorted(os.listdir(".")), sorted(os.listdir("cache")), os.path.exists("out/last.pt"), open("before").read()]
        open("before", "a").write(name)
        open(f"only-{name}", "w").write(name)
        open(f"cache/{name}", "w").write(name)
        os.rename("data", f"data-{name}")
        if name == "t4":
            os.remove("notes.txt")
        found.append(subprocess.run(f"cat before; ls; echo child >> only-{name}; cat only-*", shell=True, capture_output=True, text=True).stdout)
        found.append(subprocess.run(["ls"], env={"PATH": os.environ["PATH"]}, capture_output=True, text=True).stdout)
        os.write(writing, json.dumps(found).encode())
        os._exit(0)
    os.waitpid(process, 0)
    seen.append(json.loads(os.read(reading, 65536)))
for found in seen:
    print(json.dumps(found))
print(sorted(os.listdir(".")), sorted(os.listdir("cache")), open("before").read())
"#;

#[test]
fn branches_do_not_see_each_other() {
    let world = World::new();
    let cache = world.real().join("cache");
    std::fs::create_dir(&cache).unwrap();
    let before = fingerprint(&world.real());
    let shared = format!("{}={}/shared", cache.display(), world.scratch().display());
    let output = world
        .redirected(&command![
            "python3",
            "-c",
            PROGRAM,
            world.real(),
            world.scratch()
        ])
        .env("BRIMFUL_REDIRECT_SHARED", shared)
        .output()
        .unwrap();
    assert_eq!(fingerprint(&world.real()), before);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let expected = [
        r#"[["before", "cache", "data", "notes.txt", "out"], ["early"], false, "before", "beforet4before\ncache\ndata-t4\nonly-t4\nout\nt4child\n", "before\ncache\ndata-t4\nonly-t4\nout\n"]"#,
        r#"[["before", "cache", "data", "notes.txt", "out"], ["early", "t4"], false, "before", "beforel4before\ncache\ndata-l4\nnotes.txt\nonly-l4\nout\nl4child\n", "before\ncache\ndata-l4\nnotes.txt\nonly-l4\nout\n"]"#,
        "['before', 'cache', 'data', 'notes.txt', 'out'] ['early', 'l4', 't4'] before",
    ];
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines, expected);
}
