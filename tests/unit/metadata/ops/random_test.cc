// SPDX-License-Identifier: Apache-2.0
// Ten thousand random namespace operations against a model that is nothing but maps: same answers, same tree, same counts,
// across restarts.
#include "common/base/rng.h"
#include "tests/unit/metadata/ops/world.h"

namespace nacre::mds::test {
namespace {

struct Node {
  char type = 'f';
  uint32_t nlink = 1;
  std::map<std::string, uint64_t> children;
  uint64_t parent = 0;
};

class Model {
 public:
  std::map<uint64_t, Node> nodes{{1, Node{'d', 2, {}, 1}}};

  Errc can_add(uint64_t dir, const std::string& name) { return find(dir, name) ? Errc::kExist : Errc::kOk; }
  void add(uint64_t dir, const std::string& name, uint64_t ino, char type) {
    nodes[ino] = Node{type, type == 'd' ? 2u : 1u, {}, dir};
    put(dir, name, ino);
  }
  Errc unlink(uint64_t dir, const std::string& name) {
    uint64_t ino = find(dir, name);
    if (!ino) return Errc::kNoEnt;
    if (nodes[ino].type == 'd') return Errc::kIsDir;
    take(dir, name);
    drop(ino);
    return Errc::kOk;
  }
  Errc rmdir(uint64_t dir, const std::string& name) {
    uint64_t ino = find(dir, name);
    if (!ino) return Errc::kNoEnt;
    if (nodes[ino].type != 'd') return Errc::kNotDir;
    if (!nodes[ino].children.empty()) return Errc::kNotEmpty;
    take(dir, name);
    nodes.erase(ino);
    return Errc::kOk;
  }
  Errc link(uint64_t ino, uint64_t dir, const std::string& name) {
    if (find(dir, name)) return Errc::kExist;
    if (nodes[ino].type == 'd') return Errc::kPerm;
    nodes[ino].nlink += 1;
    put(dir, name, ino);
    return Errc::kOk;
  }
  Errc rename(uint64_t from, const std::string& name, uint64_t to, const std::string& new_name, uint32_t flags) {
    uint64_t s = find(from, name), t = find(to, new_name);
    bool swap = flags == 2;
    if (!s) return Errc::kNoEnt;
    if (t && flags == 1) return Errc::kExist;
    if (!t && swap) return Errc::kNoEnt;
    bool s_dir = nodes[s].type == 'd', t_dir = t && nodes[t].type == 'd';
    if (s_dir && from != to && inside(to, s)) return Errc::kInval;
    if (t_dir && from != to && inside(from, t)) return swap ? Errc::kInval : Errc::kNotEmpty;
    if (s == t) return Errc::kOk;
    if (t && !swap) {
      if (s_dir && !t_dir) return Errc::kNotDir;
      if (!s_dir && t_dir) return Errc::kIsDir;
      if (t_dir && !nodes[t].children.empty()) return Errc::kNotEmpty;
    }
    take(from, name);
    if (t) take(to, new_name);
    if (t && !swap) t_dir ? void(nodes.erase(t)) : drop(t);
    put(to, new_name, s);
    if (swap) put(from, name, t);
    return Errc::kOk;
  }

 private:
  uint64_t find(uint64_t dir, const std::string& name) {
    auto it = nodes[dir].children.find(name);
    return it == nodes[dir].children.end() ? 0 : it->second;
  }
  void put(uint64_t dir, const std::string& name, uint64_t ino) {
    nodes[dir].children[name] = ino;
    if (nodes[ino].type == 'd') {
      nodes[dir].nlink += 1;
      nodes[ino].parent = dir;
    }
  }
  void take(uint64_t dir, const std::string& name) {
    uint64_t ino = find(dir, name);
    nodes[dir].children.erase(name);
    if (nodes[ino].type == 'd') nodes[dir].nlink -= 1;
  }
  void drop(uint64_t ino) {
    if (--nodes[ino].nlink == 0) nodes.erase(ino);
  }
  bool inside(uint64_t at, uint64_t ancestor) {
    for (;; at = nodes[at].parent) {
      if (at == ancestor) return true;
      if (at == 1) return false;
    }
  }
};

struct Player {
  World& w;
  SeededRng rng;
  Model model;

  uint64_t some(char type) {  // '*' = any
    std::vector<uint64_t> of;
    for (auto& [ino, n] : model.nodes)
      if (type == '*' || n.type == type) of.push_back(ino);
    return of[rng.below(of.size())];
  }
  std::string name() { return "n" + std::to_string(rng.below(9)); }

  void step() {
    uint64_t dir = some('d'), other = rng.below(3) ? some('d') : dir;
    std::string a = name(), b = name();
    uint64_t what = rng.below(100);
    if (what < 30) {
      Errc expect = model.can_add(dir, a);
      char type = what < 12 ? 'd' : what < 25 ? 'f' : 'l';
      auto made = type == 'd' ? w.mkdir(kRoot, Ino(dir), a) : type == 'f' ? w.create(kRoot, Ino(dir), a) : w.symlink(kRoot, Ino(dir), a, "t");
      EXPECT_EQ(name_of(code(made)), name_of(expect));
      if (made) model.add(dir, a, made->v, type);
    } else if (what < 40) {
      EXPECT_EQ(name_of(code(w.unlink(kRoot, Ino(dir), a))), name_of(model.unlink(dir, a)));
    } else if (what < 46) {
      EXPECT_EQ(name_of(code(w.rmdir(kRoot, Ino(dir), a))), name_of(model.rmdir(dir, a)));
    } else if (what < 60) {
      uint64_t ino = some('*');
      EXPECT_EQ(name_of(code(w.link(kRoot, Ino(ino), Ino(dir), a))), name_of(model.link(ino, dir, a)));
    } else if (what < 90) {
      uint32_t flags = what < 75 ? 0 : what < 80 ? 1 : 2;
      EXPECT_EQ(name_of(code(w.rename(kRoot, Ino(dir), a, Ino(other), b, flags))), name_of(model.rename(dir, a, other, b, flags)));
    } else if (what < 95) {
      uint32_t uid = static_cast<uint32_t>(rng.below(4));
      must(w.setattr(kRoot, Ino(some('*')), wire::kSetUid | wire::kSetGid, [&](auto& q) { q.uid = q.gid = uid; }));
    } else {
      uint64_t ino = some('f');
      if (rng.below(2)) must(w.xattr_set(kRoot, Ino(ino), "user." + a, {1, 2, 3}));
      else (void)w.xattr_remove(kRoot, Ino(ino), "user." + a);
    }
  }
  void compare() {
    for (auto& [ino, n] : model.nodes) {
      EXPECT_EQ(w.record(Ino(ino)).nlink, n.nlink) << ino;
      if (n.type != 'd') continue;
      std::map<std::string, uint64_t> names;
      for (auto& e : must(w.readdir(kRoot, Ino(ino))).entries) names[std::string(as_text(e->name))] = e->ino;
      EXPECT_EQ(names, n.children) << ino;
    }
    check_namespace(*w.store, *w.journal);
  }
};

TEST(Random, TenThousandOperationsAgreeWithTheModel) {
  for (uint64_t seed : {1, 2}) {
    SCOPED_TRACE(seed);
    World w;
    Player p{w, SeededRng(seed), {}};
    p.model.nodes.size();
    must(w.create(kRoot, kRootIno, "n0"));
    p.model.add(1, "n0", must(w.lookup(kRoot, kRootIno, "n0")).v, 'f');
    for (int i = 1; i <= 5000 && !testing::Test::HasFailure(); ++i) {
      SCOPED_TRACE(i);
      bool any_file = std::any_of(p.model.nodes.begin(), p.model.nodes.end(), [](auto& n) { return n.second.type == 'f'; });
      if (!any_file) {
        Ino made = must(w.create(kRoot, kRootIno, "file" + std::to_string(i)));
        p.model.add(1, "file" + std::to_string(i), made.v, 'f');
      }
      p.step();
      if (i % 1000 == 0) {
        p.compare();
        w.stop();
        w.start();
      }
    }
    p.compare();
  }
}

}  // namespace
}  // namespace nacre::mds::test
