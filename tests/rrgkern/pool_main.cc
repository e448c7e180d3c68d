// Hammers the thread pool of csrc: built with ThreadSanitizer by test_pool.py. Prints "sound".
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <stdexcept>
#include <thread>
#include <vector>

#include "common/threads.h"

namespace {

// Each item is written once, by whichever thread takes it; the sum is read behind the call.
bool fill(int64_t threads, int64_t count) {
  std::vector<int64_t> values(count, 0);
  rrgkern::Items items(count, 3);
  rrgkern::on_threads(threads, [&] {
    for (int64_t begin, end; items.take(&begin, &end);) {
      for (int64_t i = begin; i < end; ++i) values[i] += i + 1;
    }
  });
  int64_t sum = 0;
  for (int64_t value : values) sum += value;
  return sum == count * (count + 1) / 2;
}

bool passes_on_an_error() {
  try {
    rrgkern::on_threads(3, [] { throw std::runtime_error("planted"); });
  } catch (const std::runtime_error&) {
    return true;
  }
  return false;
}

bool several_callers() {
  bool right[4] = {};
  std::vector<std::thread> callers;
  for (bool& each : right) {
    callers.emplace_back([&each] {
      each = true;
      for (int i = 0; i < 50; ++i) each = each && fill(3, 100);
    });
  }
  for (std::thread& caller : callers) caller.join();
  return right[0] && right[1] && right[2] && right[3];
}

bool nested() {
  std::atomic<int> right{0}, calls{0};
  rrgkern::on_threads(3, [&] {
    ++calls;
    right += fill(3, 40);
  });
  return right == calls && calls > 0;
}

}  // namespace

int main(int count, char**) {
  bool sound = true;
  for (int64_t i = 0; i < 300; ++i) sound = sound && fill(1 + i % 5, i % 70);
  sound = sound && passes_on_an_error() && several_callers() && nested();
  if (count > 1) {  // with an argument: fork too, which ThreadSanitizer does not follow
    const pid_t child = fork();
    if (child == 0) _exit(fill(3, 1000) && several_callers() ? 0 : 1);
    int status = 1;
    waitpid(child, &status, 0);
    sound = sound && status == 0 && fill(4, 1000);
  }
  std::puts(sound ? "sound" : "wrong");
  return sound ? 0 : 1;
}
