/* train THREADS: trains once, writes trained.bin, then opens and closes as often as nobody would. */
#include <stdlib.h>

#include "session.h"

enum { TIMES = 50 };

int main(int argc, char** argv) {
  CLAIM(argc == 2);
  session_begin(atoi(argv[1]));
  CLAIM(session_open() == EDGE_OK);
  CLAIM(session_train() == EDGE_OK);
  session_remember();
  session_write("trained.bin");
  edge_close();
  for (int time = 0; time < TIMES; time++) {
    CLAIM(session_open() == EDGE_OK);
    if (time % 10 == 0) {
      CLAIM(session_train() == EDGE_OK);
      CLAIM(session_matches());
    }
    edge_close();
  }
  session_end();
  return 0;
}
