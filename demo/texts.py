"""Every text of the page, in English and Chinese."""

LANGUAGES = {"en": "English", "zh": "中文"}

WORDS: dict[str, tuple[str, str]] = {  # key: in the order of LANGUAGES
    # --- the head of the page
    "title": ("What do the heads look at?", "注意力头在看什么？"),
    "intro": (
        "A small transformer reads a sequence of bits and says whether ones are the majority. "
        "Type one, see where each of its attention heads looks, and switch heads off to learn which of them matter.",
        "一个小型 Transformer 读入一串比特，判断 1 是否占多数。"
        "输入一串，看看每个注意力头在看哪里；再关掉一些头，看看哪些头真正重要。",
    ),
    "language": ("Language", "语言"),
    "no_checkpoint": (
        "There is no checkpoint yet: `make train` makes one in under a minute. Then reload this page.",
        "还没有检查点：运行 `make train`，不到一分钟即可训练好一个，然后刷新本页。",
    ),
    "left_out": (
        "Left out, for it does not open: <b>{name}</b> ({reason}).",
        "已略去，因为无法打开：<b>{name}</b>（{reason}）。",
    ),
    "text_title": ("What do the heads of {name} look at?", "{name} 的注意力头在看什么？"),
    "text_intro": (
        "A model with {layers} × {heads} heads reads a text. Type one, see where each of its attention heads looks, "
        "and switch heads off to learn what they change.",
        "一个有 {layers} × {heads} 个头的模型读入一段文本。"
        "输入一段，看看每个注意力头在看哪里；再关掉一些头，看看会改变什么。",
    ),
    "two_intro": (
        "A model of two parts reads a text, with {encoder} × {heads} heads in its encoder, {decoder} × {heads} in its "
        "decoder and {cross} × {heads} that look from the one to the other. Type a text, see where each of its "
        "attention heads looks, and switch heads off to learn what they change.",
        "一个由两部分组成的模型读入文本：编码器有 {encoder} × {heads} 个头，解码器有 {decoder} × {heads} 个头，"
        "另有 {cross} × {heads} 个头从解码器看编码器。"
        "输入一段，看看每个注意力头在看哪里；再关掉一些头，看看会改变什么。",
    ),
    "two_intro_decoder": (
        "A model of two parts reads a text, with {decoder} × {heads} heads in its decoder and {cross} × {heads} that "
        "look from there to its encoder, whose own attention cannot be seen: it is computed in a way of its own. Type "
        "a text, see where each of the attention heads looks, and switch heads off to learn what they change.",
        "一个由两部分组成的模型读入文本：解码器有 {decoder} × {heads} 个头，"
        "另有 {cross} × {heads} 个头从解码器看编码器；编码器自身的注意力以其特有的方式计算，无法看到。"
        "输入一段，看看每个注意力头在看哪里；再关掉一些头，看看会改变什么。",
    ),
    "text_how": (
        "Each square is one head. A **row** is a query, the token that looks; a **column** is a key, a token that is "
        "looked at. The darker a cell, the more of its attention the query gives that key; each row adds up to 1. "
        "A token is a piece of a word as the model reads it: ## continues a word, ␣ is a space, `<E4>` a byte that is "
        "no character by itself; tokens in brackets are added by the tokenizer. The number above a map is what "
        "changes without that head. Layers, heads and positions are counted from 0. **Click a map** to see it large, "
        "with its statistics; its **switch** turns the head off.",
        "每个方块是一个头。**行**是查询（query），即在看的词元；**列**是键（key），即被看的词元。"
        "格子越深，查询分给该键的注意力越多；每行之和为 1。"
        "词元是模型读到的词的片段：## 接续一个词，␣ 是空格，`<E4>` 是单独不成字符的字节；方括号中的词元由分词器添加。"
        "图上方的数字是去掉这个头后的变化。层、头和位置都从 0 数起。"
        "**点击图**可放大并查看其统计量；图旁的**开关**可关掉这个头。",
    ),
    "two_how": (
        "This model has two parts, and three kinds of attention. The **encoder** reads the first text, every token all "
        "of it. The **decoder** reads the second, as if to foretell it: the mark that it begins with and then each "
        "token but the last; a token sees none that come later. In **cross** attention the decoder’s tokens, the rows, "
        "look at the encoder’s, the columns. Heads of one kind stay off while another is shown.",
        "这个模型有两部分和三种注意力。**编码器**读第一段文本，每个词元都能看到全文。"
        "**解码器**读第二段文本，如同要逐个预测它：先是起始标记，然后是除最后一个之外的每个词元；词元看不到后面的词元。"
        "在**交叉**注意力中，解码器的词元（行）看编码器的词元（列）。显示另一种注意力时，已关闭的头仍然关闭。",
    ),
    "two_how_classifier": (
        "This model has two parts, and three kinds of attention. The **encoder** reads the text, every token all of "
        "it. The **decoder** reads it once more, after the mark that it begins with and but for the last token; a "
        "token sees none that come later. In **cross** attention the decoder’s tokens, the rows, look at the "
        "encoder’s, the columns. Heads of one kind stay off while another is shown.",
        "这个模型有两部分和三种注意力。**编码器**读这段文本，每个词元都能看到全文。"
        "**解码器**把它再读一遍：先是起始标记，最后一个词元除外；词元看不到后面的词元。"
        "在**交叉**注意力中，解码器的词元（行）看编码器的词元（列）。显示另一种注意力时，已关闭的头仍然关闭。",
    ),
    # --- the question
    "text": ("Text", "文本"),
    "text_of_encoder": ("Text for the encoder", "编码器读的文本"),
    "second": ("Text for the decoder", "解码器读的文本"),
    "second_placeholder": (
        "at most {longest} tokens; if empty, the decoder reads the mark that it begins with",
        "最多 {longest} 个词元；留空时，解码器只读起始标记",
    ),
    "text_placeholder": ("at most {longest} tokens", "最多 {longest} 个词元"),
    "sequence": ("Sequence", "序列"),
    "checkpoint": ("Checkpoint", "检查点"),
    "placeholder": ("1 to {longest} of {vocab}", "1 至 {longest} 个 {vocab}"),
    "random": ("random", "随机"),
    "clear": ("clear", "清空"),
    "tie": ("a tie: {ones} of {length}", "平局：{length} 个中有 {ones} 个"),
    "sorted": ("a tie, sorted", "平局，已排序"),
    "more": ("one more: {ones}", "多一个：{ones}"),
    "fewer": ("one fewer: {ones}", "少一个：{ones}"),
    "all": ("all ones", "全是 1"),
    # --- the answer
    "ones": ("<strong>{n} of {length}</strong> are ones.", "<strong>{length} 个中有 {n} 个</strong>是 1。"),
    "agrees": ("By the rule: {expected}. The model agrees.", "按规则：{expected}。模型答对了。"),
    "wrong": (
        "By the rule: {expected}. <strong>The model is wrong here.</strong>",
        "按规则：{expected}。<strong>模型在这里答错了。</strong>",
    ),
    "margin": ("margin", "差距"),
    "margin_hint": (
        "the logit of the answer minus the largest other; below 0 the answer changes",
        "答案的 logit 减去其余最大的 logit；低于 0 时答案改变",
    ),
    "unseen_length": (
        "{length} tokens: the model was trained on sequences of {trained} and has never seen this length.",
        "{length} 个词元：模型只在长度为 {trained} 的序列上训练过，从未见过这个长度。",
    ),
    "cosine_hint": (
        "the cosine of this text’s embedding ({size} numbers, the mean over its tokens) with that of all heads on",
        "这段文本的嵌入（{size} 个数，各词元的平均）与所有头都打开时的嵌入之间的余弦",
    ),
    "cosine_hint_two": (
        "the cosine of what the decoder makes of its text ({size} numbers, the mean over its tokens) with that of all "
        "heads on",
        "解码器对其文本的表示（{size} 个数，各词元的平均）与所有头都打开时的表示之间的余弦",
    ),
    "next_token": ("After this text the model expects", "模型认为这段文本之后是"),
    "next_token_two": ("After the decoder’s text the model expects", "模型认为解码器的文本之后是"),
    "tokens_of": ("{count} tokens; at most {longest}", "{count} 个词元，最多 {longest} 个"),
    "tokens_of_two": (
        "{encoder} tokens for the encoder, {decoder} for the decoder; at most {longest} each",
        "编码器 {encoder} 个词元，解码器 {decoder} 个，各最多 {longest} 个",
    ),
    "heads_off": ("Switched off: {heads}.", "已关闭：{heads}。"),
    "which_matters": ("Which head matters here?", "哪个头在这里重要？"),
    "which_matters_hint": (
        "How the margin changes without each head, on this sequence alone.",
        "只就这个序列而言，去掉每个头之后差距如何变化。",
    ),
    "cosine_matters_hint": (
        "How the cosine with the embedding of all heads on changes without each head, on this text alone.",
        "只就这段文本而言，去掉每个头之后，与所有头都打开时的嵌入之间的余弦如何变化。",
    ),
    "answer_changes": ("the answer changes", "答案改变"),
    # --- cells
    "cells": ("the sequence, a button for each token", "序列，每个词元一个按钮"),
    "cell": ("position {i}: {token}; click for {other}", "位置 {i}：{token}；点击改为 {other}"),
    "cell_effect": ("margin {change}", "差距 {change}"),
    # --- the grid
    "how": (
        "Each square is one head. A **row** is a query, the token that looks; a **column** is a key, a token that is "
        "looked at. The darker a cell, the more of its attention the query gives that key; each row adds up to 1. "
        "The number above a map is the change of the margin without that head. Layers, heads and positions are "
        "counted from 0. **Click a map** to see it large, with its statistics; its **switch** turns the head off. "
        "◆ marks a head that does something unusual here.",
        "每个方块是一个头。**行**是查询（query），即在看的词元；**列**是键（key），即被看的词元。"
        "格子越深，查询分给该键的注意力越多；每行之和为 1。"
        "图上方的数字是去掉这个头后差距的变化。层、头和位置都从 0 数起。"
        "**点击图**可放大并查看其统计量；图旁的**开关**可关掉这个头。◆ 表示这个头在此有不寻常之处。",
    ),
    "layer": ("layer {layer}", "第 {layer} 层"),
    "head": ("head {head}", "头 {head}"),
    "layer_head": ("layer {layer}, head {head}", "第 {layer} 层，头 {head}"),
    "kind": ("Attention", "注意力"),
    "kind_encoder": ("encoder", "编码器"),
    "kind_decoder": ("decoder", "解码器"),
    "kind_cross": ("cross", "交叉"),
    "of_kind": ("{kind} attention", "{kind}注意力"),
    "head_of_kind": ("{kind} attention, layer {layer}, head {head}", "{kind}注意力，第 {layer} 层，头 {head}"),
    "largest": ("largest weight {weight}", "最大权重 {weight}"),
    "query_key": (
        "query {query} ‘{query_token}’ → key {key} ‘{key_token}’",
        "查询 {query} ‘{query_token}’ → 键 {key} ‘{key_token}’",
    ),
    "all_on": ("all heads on", "全部打开"),
    "without_cosine": ("cosine {change} without it", "去掉后余弦 {change}"),
    "without": ("margin {change} without it", "去掉后差距 {change}"),
    "legend": ("colour scale", "色标"),
    "scale": ("Colours", "颜色"),
    "scale_shared": ("one scale for all", "统一色标"),
    "scale_own": ("each head its own", "各头各自"),
    "each_largest": ("each head’s largest", "各头的最大值"),
    "show": ("Show", "显示"),
    "show_weights": ("weights", "权重"),
    "show_norms": ("weight × length of the value", "权重 × 值的长度"),
    "show_difference": ("difference from the head’s mean map", "与该头平均图之差"),
    "show_beside": ("difference from what is compared", "与对照之差"),
    "replacement": ("A head that is off gives", "关掉的头输出"),
    "replacement_zero": ("nothing", "零"),
    "replacement_mean": ("its mean output", "它的平均输出"),
    "nearest_wrong": ("The model is nearest to wrong on", "模型最接近答错的序列"),
    # --- one head
    "as": ("Draw as", "画成"),
    "as_map": ("heat map", "热图"),
    "as_arcs": ("arcs", "弧线"),
    "arcs_hint": (
        "Left: the tokens that look; right: what is looked at. The stronger a line, the more weight. Point at a token.",
        "左：在看的词元；右：被看的词元。线越浓，权重越大。请指向一个词元。",
    ),
    "arcs_most": ("strongest: {pair}, {value}", "最强：{pair}，{value}"),
    "keys_hint": ("arrow keys point", "方向键可指向"),
    "sharpest": ("This head is sharpest on", "这个头最集中的序列"),
    "flattest": ("and flattest on", "最分散的序列"),
    "statistic": ("statistic", "统计量"),
    "value": ("value", "数值"),
    "percentile": ("percentile", "百分位"),
    "usual_among": (
        "The percentile says how many of all {count} sequences of length {length} have less, for this head. "
        "Outside 0.5 to 99.5, as one sequence in a hundred, it is marked as unusual.",
        "百分位：在全部 {count} 个长度为 {length} 的序列中，这个头有百分之多少的序列数值更小。"
        "在 0.5 至 99.5 之外（约百分之一的序列）标为不寻常。",
    ),
    "usual_length": (
        "What is usual is known for sequences of length {length} only.",
        "只知道长度为 {length} 的序列通常是什么样。",
    ),
    "usual_other": (
        "reference.npz is of another model or version: what is usual is not known.",
        "reference.npz 属于另一个模型或版本：不知道通常是什么样。",
    ),
    "unusual": ("unusual here: {statistics}", "在此不寻常：{statistics}"),
    # --- over the whole set
    "set_title": (
        "Every head over all {count} sequences of length {length}",
        "全部 {count} 个长度为 {length} 的序列上的每个头",
    ),
    "set_how": (
        "What the set loses without each head, and means over the set. A click on a heading sorts by it and draws its "
        "distribution in each head: the line goes from the 1st to the 99th percentile, the middle half is thick, the "
        "stroke is the median, the dot is the sequence above. A click on a head shows it large.",
        "去掉每个头之后整个集合的损失，以及集合上的平均值。点击列名按其排序，并画出它在每个头中的分布："
        "细线从第 1 到第 99 百分位，粗线是中间一半，竖线是中位数，圆点是上面的序列。点击一个头可放大查看。",
    ),
    "set_of_head": (
        "This head over all {count} sequences of length {length}",
        "这个头在全部 {count} 个长度为 {length} 的序列上",
    ),
    "worth_over_set": (
        "Without it {lost} % of the answers are lost, and the loss changes by {loss} nats.",
        "去掉它会失去 {lost} % 的正确答案，损失函数变化 {loss} 奈特。",
    ),
    "mean_map": ("mean map", "平均图"),
    "offset_profile": ("mean weight by offset, key − query", "按偏移（键 − 查询）的平均权重"),
    "here": ("here {value}", "此处 {value}"),
    "set_head": ("head", "头"),
    "set_spread": ("distribution: {statistic}", "分布：{statistic}"),
    "in_table": ("among all heads", "在所有头中"),
    # --- the studies of the set
    "not_measured": (
        "Nobody has read {name} over a whole set yet, so that what is usual is not known: "
        "python -m analysis.reference --checkpoint checkpoints/{name} does.",
        "还没有人在整个集合上读过 {name}，因此不知道通常是什么样："
        "python -m analysis.reference --checkpoint checkpoints/{name} 可以做到。",
    ),
    "waiting": ("on its way …", "正在读取……"),
    "back_to": ("back to: {title}", "返回：{title}"),
    "differences_title": ("Differences between classes", "类别之间的差异"),
    "differences_how": (
        "Where a head attends differently when the answer is different. Cohen’s d is the difference of the two means "
        "over the standard deviation within the groups: 0.2 is small, 0.8 large. Headings sort, by size whatever the "
        "sign. A click on a row shows the head, with this statistic.",
        "答案不同时，哪些头的注意力也不同。Cohen’s d 是两个平均值之差除以组内标准差：0.2 为小，0.8 为大。"
        "点击列名可排序，按大小而不论正负。点击一行可放大查看该头和这个统计量。",
    ),
    "differences_population": (
        "These are all sequences there are: nothing is estimated, so that there is nothing to test.",
        "这已是全部序列：没有什么是估计出来的，因此无需检验。",
    ),
    "differences_tested": (
        "p is Welch’s test over sequences, corrected for the number of rows (Benjamini & Hochberg).",
        "p 来自对各序列的 Welch 检验，并按行数校正（Benjamini–Hochberg）。",
    ),
    "differences_none": (
        "There are no two groups of sequences to compare.",
        "没有两组可以比较的序列。",
    ),
    "compared_groups": ("compared groups", "所比较的组"),
    "answers_right": ("right answers", "答对的"),
    "answers_wrong": ("wrong answers", "答错的"),
    "all_statistics": ("all statistics", "所有统计量"),
    "difference": ("Difference", "差"),
    "cohens_d": ("Cohen’s d", "Cohen’s d（效应量）"),
    "p_adjusted": ("p, corrected", "p（已校正）"),
    "sequences": ("sequences", "序列数"),
    "worth_title": ("What each head is worth", "每个头的价值"),
    "worth_how": (
        "What the whole set loses when one head is switched off and gives nothing, or its mean output, in the place of "
        "its own. The scale of the loss is logarithmic beyond 0.0001. A click on a row shows the head.",
        "关掉一个头，让它输出零或它的平均输出时，整个集合损失多少。损失函数的标尺在 0.0001 以上为对数。"
        "点击一行可放大查看该头。",
    ),
    "gives_nothing": ("gives nothing", "输出零"),
    "gives_mean": ("gives its mean", "输出平均值"),
    "drawn": ("drawn", "图示"),
    "growth_title": ("Every head through training", "训练过程中的每个头"),
    "growth_how": (
        "Means over the set, and what it loses without each head, at each snapshot. Steps run on a logarithmic scale; "
        "the upright line is where the slider above stands, the dashed one is uniform attention. A click on a line "
        "shows its head.",
        "每个快照时在整个集合上的平均值，以及去掉每个头的损失。步数为对数标尺；"
        "竖线是上面滑块的位置，虚线是均匀注意力。点击一条线可放大查看该头。",
    ),
    "growth_none": (
        "What it did at its snapshots is not measured.",
        "没有测量过它在各快照时的表现。",
    ),
    # --- through training
    "training": ("Through training", "训练过程"),
    "after_steps": ("after {step} steps", "{step} 步之后"),
    "trained": ("trained", "训练完成"),
    # --- comparing
    "compare": ("Compare", "对照"),
    "pin": ("pin this sequence", "固定此序列"),
    "unpin": ("unpin", "取消固定"),
    "pinned": ("pinned", "已固定"),
    "now": ("now", "现在"),
    "now_minus_pinned": ("now − pinned", "现在 − 已固定"),
    "a_minus_b": ("{a} − {b}", "{a}减{b}"),
    "compare_checkpoint": ("with the checkpoint", "与检查点"),
    "compared_with": ("compared with {name}", "与 {name} 对照"),
    "compare_no_more": ("no more", "结束对照"),
    # --- taking away
    "copy_link": ("copy a link to this view", "复制此视图的链接"),
    "copied": ("copied", "已复制"),
    "save_all": ("Save all heads", "保存所有头"),
    "save_head": ("Save this head", "保存这个头"),
    "close": ("Close", "关闭"),
    # --- refusals: ValueErrors for the person who asked
    "busy": (
        "too many are asking at once ({most} are in line); please try again in a moment",
        "同时提问的人太多（已有 {most} 个在排队），请稍后再试",
    ),
    "empty": (
        "the sequence is empty; type 1 to {longest} of the characters {vocab}",
        "序列为空；请输入 1 至 {longest} 个字符，取自 {vocab}",
    ),
    "unknown_token": (
        "character {token} at position {position} is not in the vocabulary {vocab}",
        "第 {position} 个字符 {token} 不在词表 {vocab} 中",
    ),
    "too_long": (
        "{length} tokens; this checkpoint takes at most {longest}",
        "{length} 个词元；这个检查点最多接受 {longest} 个",
    ),
    "empty_text": ("the text is empty; type up to {longest} tokens", "文本为空；请输入最多 {longest} 个词元"),
    "empty_first_text": (
        "the text for the encoder is empty; type up to {longest} tokens",
        "编码器读的文本为空；请输入最多 {longest} 个词元",
    ),
    "too_long_text": (
        "{length} tokens; this page takes at most {longest}, and cuts nothing off",
        "{length} 个词元；本页最多接受 {longest} 个，且不会截断",
    ),
    "too_long_second": (
        "{length} tokens for the decoder; this page takes at most {longest}, and cuts nothing off",
        "给解码器的有 {length} 个词元；本页最多接受 {longest} 个，且不会截断",
    ),
    "no_second": (
        "second: got a text, but this model reads one text alone",
        "第二段文本：收到了文本，但这个模型只读一段",
    ),
    "too_many_characters": (
        "{length} characters; this page takes at most {longest}",
        "{length} 个字符；本页最多接受 {longest} 个",
    ),
    "not_text": ("sequence: got {kind}, allowed is text", "序列：收到的是 {kind}，只接受文本"),
    "unknown_checkpoint": (
        "checkpoint: got {name}, allowed is {known}",
        "检查点：收到的是 {name}，可用的是 {known}",
    ),
    "no_checkpoint_there": (
        "checkpoint: got {name}, but there is none; `make train` makes one",
        "检查点：收到的是 {name}，但一个也没有；`make train` 可训练一个",
    ),
    "no_mean": (
        "replacement: the mean outputs are known up to length {longest}, the sequence has {length}",
        "替换方式：平均输出只知道到长度 {longest}，而序列长 {length}",
    ),
    "unknown_head": (
        "head: got {head}, allowed is layer 0 to {last_layer}, head 0 to {last_head}",
        "头：收到的是 {head}，可用的是第 0 至 {last_layer} 层、头 0 至 {last_head}",
    ),
    "unknown_kind": ("attention: got {kind}, allowed is {known}", "注意力：收到的是 {kind}，可用的是 {known}"),
    "unknown_head_of_kind": (
        "head: got {head}, allowed is its attention ({known}), its layer and its number",
        "头：收到的是 {head}，应为其注意力（{known}）、层和编号",
    ),
    "unknown_ending": ("file: got {ending}, allowed is {known}", "文件：收到的是 {ending}，可用的是 {known}"),
    "unknown_step": (
        "step: got {step}, of this checkpoint are kept {known}",
        "步数：收到的是 {step}，这个检查点保存的是 {known}",
    ),
    "unknown_quantity": (
        "quantity: got {quantity}, which is none, or not known for this sequence",
        "显示的量：收到的是 {quantity}，没有这个量，或对此序列未知",
    ),
    "unknown_replacement": (
        "replacement: got {replacement}, allowed is {known}",
        "替换方式：收到的是 {replacement}，可用的是 {known}",
    ),
}
