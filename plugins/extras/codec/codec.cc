// codec: sends rows and their gradients as float16, bfloat16 or int8, over any transport.
#include "codec.h"

TESSERA_PLUGIN("codec", "1.0.0",
               tessera::sdk::component<extras::Codec>({.id = "codec",
                                                       .version = "1.0.0",
                                                       .about = "rows and gradients in fp16, bf16 or int8",
                                                       .priority = -100}));
